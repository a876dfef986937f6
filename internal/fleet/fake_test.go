package fleet

import (
	"math"
	"time"

	"github.com/kvtuner/kvtuner/plugin"
)

// settingPolicy is the least that can stand in for the policy in tests: the
// published settings, with the gate's 2 s EWMA that closes at the limit and
// opens at half of it.
type settingPolicy struct {
	setting Setting
	gates   map[string]*gate
}

type gate struct {
	ewma   float64
	at     time.Time
	closed bool
}

func newSettingPolicy(s Setting) (Policy, error) {
	return &settingPolicy{setting: s, gates: map[string]*gate{}}, nil
}

func (p *settingPolicy) Observe(endpoint string, waiting int, at time.Time) {
	g, ok := p.gates[endpoint]
	if !ok {
		g = &gate{at: at}
		p.gates[endpoint] = g
	}
	w := math.Exp2(-at.Sub(g.at).Seconds() / 2)
	g.ewma = w*g.ewma + (1-w)*float64(waiting)
	g.at = at
	limit := float64(p.setting.MaxWaiting)
	g.closed = limit > 0 && (g.ewma >= limit || g.closed && g.ewma > limit/2)
}

func (p *settingPolicy) Decide(r *plugin.Request) plugin.Decision {
	m := r.Evidence.Prompts[0]
	gpu := m.ByTier["gpu"]
	reusable := max(0, max(m.ByTier["cpu"], m.CachedBlocks)-gpu) * r.Evidence.BlockSize
	d := plugin.Decision{ReusableTokens: reusable, Evidence: true}
	switch {
	case p.setting.Policy == "recompute",
		p.setting.Policy == "threshold" && (reusable < p.setting.MinTokens || p.gates[r.Endpoint].closed):
		d.Action = plugin.Recompute
	}
	return d
}

func (p *settingPolicy) ObserveFirstToken(plugin.Decision, time.Duration, int) {}
func (p *settingPolicy) ObserveOutput(plugin.Decision, int)                    {}
