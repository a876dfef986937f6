// Package evidence is what a data producer tells the policy about the cached
// prefix of a request on an endpoint: the contract between the two, as an
// attribute of the endpoint in the Endpoint Picker's data layer.
//
// It knows neither how the counts are found nor what is decided from them.
package evidence

import (
	"maps"

	"github.com/kvtuner/kvtuner/plugin"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/datalayer"
)

// PrefixTiersKey is the endpoint attribute that holds a *PrefixTiers.
const PrefixTiersKey = "kvtuner.PrefixTiers"

// Declared is what a producer returns from Produces and a consumer from
// Consumes: the framework compares the values of both with ==, so that they
// must be one and the same.
func Declared() map[string]any {
	return map[string]any{PrefixTiersKey: (*PrefixTiers)(nil)}
}

// PrefixTiers is the cached prefix of one request on one endpoint. A producer
// puts it on each candidate endpoint of the request; where it knows nothing, it
// puts nothing.
type PrefixTiers struct {
	// Prompts has one match a prompt of the request.
	Prompts []plugin.PrefixMatch
	// BlockSize is the number of tokens in a block.
	BlockSize int
	// PromptTokens of all prompts together, 0 if not known.
	PromptTokens int
}

var _ datalayer.Cloneable = (*PrefixTiers)(nil)

// Clone returns a copy that shares nothing with p; nil of nil. A nil tier map
// stays nil: it says "no evidence", not "nothing cached".
func (p *PrefixTiers) Clone() datalayer.Cloneable {
	if p == nil {
		return (*PrefixTiers)(nil)
	}
	clone := &PrefixTiers{Prompts: make([]plugin.PrefixMatch, len(p.Prompts)), BlockSize: p.BlockSize, PromptTokens: p.PromptTokens}
	for i, match := range p.Prompts {
		clone.Prompts[i] = plugin.PrefixMatch{CachedBlocks: match.CachedBlocks, ByTier: maps.Clone(match.ByTier)}
	}
	return clone
}
