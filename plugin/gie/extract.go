package gie

import (
	"context"
	"fmt"
	"reflect"

	dto "github.com/prometheus/client_model/go"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/datalayer"

	"github.com/kvtuner/kvtuner/plugin/adapter"
)

// ExpectedInputType is anything: the plugin is an extractor of the scrape
// (Extract) and of endpoints (ExtractEndpoint).
func (p *Plugin) ExpectedInputType() reflect.Type { return reflect.TypeFor[any]() }

// Extract takes the load of an engine out of a scrape of the EPP, if the plugin
// is listed under its metrics source.
func (p *Plugin) Extract(_ context.Context, data any, from datalayer.Endpoint) error {
	families, ok := data.(map[string]*dto.MetricFamily)
	if !ok {
		return fmt.Errorf("%s: cannot extract from %T, list the plugin under a metrics-data-source or an endpoint-notification-source", p.name, data)
	}
	if from != nil && from.GetMetadata() != nil {
		p.adapter.Scraped(adapter.EndpointID(from.GetMetadata().NamespacedName), families)
	}
	return nil
}

// ExtractEndpoint frees what is kept of an endpoint that was removed, if the
// plugin is listed under an endpoint-notification-source.
func (p *Plugin) ExtractEndpoint(_ context.Context, event datalayer.EndpointEvent) error {
	if event.Endpoint == nil || event.Endpoint.GetMetadata() == nil {
		return nil
	}
	id := adapter.EndpointID(event.Endpoint.GetMetadata().NamespacedName)
	if event.Type == datalayer.EventDelete {
		p.adapter.Removed(id)
	} else {
		p.adapter.Added(id)
	}
	return nil
}
