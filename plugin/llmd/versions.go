package llmd

import (
	"github.com/llm-d/llm-d-router/pkg/epp/framework/interface/datalayer"
	fwkplugin "github.com/llm-d/llm-d-router/pkg/epp/framework/interface/plugin"
	"github.com/llm-d/llm-d-router/pkg/epp/framework/interface/requesthandling"
	"github.com/llm-d/llm-d-router/pkg/epp/framework/interface/scheduling"
)

// What differs between v0.10.0 and later versions of the framework is here, and
// nowhere else.

// attribute reads an attribute of an endpoint. Its key is a string in v0.10.0,
// a DataKey later.
func attribute(endpoint scheduling.Endpoint, key fwkplugin.DataKey) (datalayer.Cloneable, bool) {
	switch e := any(endpoint).(type) {
	case interface {
		Get(fwkplugin.DataKey) (datalayer.Cloneable, bool)
	}:
		return e.Get(key)
	case interface {
		Get(string) (datalayer.Cloneable, bool)
	}:
		return e.Get(key.String())
	default:
		return nil, false
	}
}

// send replaces the payload. v0.10.0 marshals every payload anew; later versions
// send the original bytes unless the payload was edited through MutatePayloadMap.
func send(body *requesthandling.InferenceRequestBody, edited requesthandling.PayloadMap) {
	body.Payload = edited
	if b, ok := any(body).(interface {
		MutatePayloadMap(func(requesthandling.PayloadMap))
	}); ok {
		b.MutatePayloadMap(func(requesthandling.PayloadMap) {})
	}
}
