package plugin

import "github.com/kvtuner/kvtuner/store"

// Request is what the policy needs to know of one request that was routed to
// one endpoint.
type Request struct {
	// ID identifies the request; probes are drawn from its hash. Empty: never
	// probed.
	ID string
	// Endpoint identifies the engine. Empty: the gate has no evidence and does
	// not veto.
	Endpoint string
	// Unstreamed says that the response comes in one piece, so that its first
	// token cannot be timed: the request stays out of the cost counters, where
	// it would look like one that never finishes.
	Unstreamed bool
	Evidence   Evidence
}

// Evidence is what is known of a request's cached prefix on its endpoint.
type Evidence struct {
	// Prompts has one match a prompt of the request; empty is "no evidence".
	Prompts []PrefixMatch
	// BlockSize is the number of tokens in a block.
	BlockSize int
	// PromptTokens of all prompts together, 0 if not known. They tell how many
	// tokens the engine will compute, where it does not say so itself in time.
	PromptTokens int
	// LoadTiers are the tiers the client permits to load from, as LoadTiers
	// reads them; nil permits all, an empty list none.
	LoadTiers []string
}

// PrefixMatch is the cached prefix of one prompt, in blocks.
type PrefixMatch struct {
	// CachedBlocks is the contiguous prefix held over all tiers together.
	CachedBlocks int
	// ByTier is the contiguous prefix from block 0 held within each tier
	// alone, keyed by lower-case tier name; nil is "no evidence", an empty map
	// is "nothing cached".
	ByTier map[string]int
}

// Action is what the engine is told to do with KV cache outside the GPU.
type Action uint8

// Actions.
const (
	Load Action = iota
	Recompute

	actions = iota
)

// String is the value of the action label: "load" or "recompute".
func (a Action) String() string {
	if a == Recompute {
		return "recompute"
	}
	return "load"
}

// Decision is the policy's answer for one request.
type Decision struct {
	Action Action
	// DisableOffload forbids writing this request's KV cache out.
	DisableOffload bool
	Reason         Reason
	Arm            store.Arm
	// Revision of the parameter document in force; 0 for static configuration.
	Revision int64
	// ReusableTokens is what a restore would bring; meaningful if Evidence.
	ReusableTokens int
	Evidence       bool

	metrics  *metrics  // counts what Mutate refuses; nil counts nothing
	computes int       // prompt tokens the engine will compute, and 1; 0 is not known
	restores *restores // of the endpoint, where this one is pending; nil if it is not
	at       int64     // when it was decided, since the policy's epoch
}
