package adapter

import (
	"strings"

	"github.com/kvtuner/kvtuner/plugin"
)

// Unknown is a number of tokens or requests that nobody reported.
const Unknown = -1

// Piece is a part of a response's body. Token counts are those known so far.
type Piece struct {
	// End says that nothing follows, whether the response was complete or not.
	End bool
	// PromptTokens, CompletionTokens: 0 is not reported yet.
	PromptTokens, CompletionTokens int
	// CachedTokens are the prompt tokens that the engine did not compute; Unknown
	// if it does not say.
	CachedTokens int
}

// ResponseHeader notes whether a good response has begun, and whether the
// request that it answers still said what the policy wrote: body is the parsed
// body as it was sent, nil if there is none any more.
func (a *Adapter) ResponseHeader(key any, headers map[string]string, body map[string]any) {
	d := a.inFlight.get(key)
	if d == nil {
		return
	}
	d.answered = succeeded(headers)
	d.streamed = d.streamed && streams(headers)
	if d.edited && replaced(body, d.decision) {
		a.Fault(FaultPlugin)
		a.abandon(key, d)
	}
}

// ResponseBody reports the first token of a streamed response, and the tokens of
// a finished one. Call it for every piece of a stream, once otherwise, and at
// last with End, after a broken response, too.
func (a *Adapter) ResponseBody(key any, p Piece) {
	d := a.inFlight.get(key)
	if d == nil {
		return
	}
	if d.answered && d.streamed && !d.began && p.isToken() {
		d.began = true
		a.policy.ObserveFirstToken(d.decision, a.now().Sub(d.at), p.computed())
	}
	if !p.End {
		return
	}
	if d.answered && p.CompletionTokens > 0 {
		a.policy.ObserveOutput(d.decision, p.CompletionTokens)
	}
	a.abandon(key, d)
}

// abandon forgets a request of which nothing more will be reported.
func (a *Adapter) abandon(key any, d *decided) {
	if a.inFlight.remove(key) && !d.began {
		a.policy.Abandon(d.decision)
	}
}

// isToken tells a piece of a stream from the end of one that brought nothing,
// such as a client that went away.
func (p Piece) isToken() bool { return !p.End || p.CompletionTokens > 0 }

// computed is the number of prompt tokens the engine computed itself.
func (p Piece) computed() int {
	if p.PromptTokens <= 0 || p.CachedTokens < 0 {
		return Unknown
	}
	return p.PromptTokens - p.CachedTokens
}

// succeeded is true for a response without a status, too: not every proxy sends
// it on.
func succeeded(headers map[string]string) bool {
	for _, name := range []string{":status", "status"} {
		if status, found := headers[name]; found {
			return strings.HasPrefix(status, "2")
		}
	}
	return true
}

func streams(headers map[string]string) bool {
	for name, value := range headers {
		if strings.EqualFold(name, "content-type") {
			return strings.Contains(strings.ToLower(value), "text/event-stream")
		}
	}
	return true
}

// replaced says whether the decision would have to be written again.
func replaced(body map[string]any, decision plugin.Decision) bool {
	if !editable(body) {
		return true
	}
	again, err := wouldChange(body, decision)
	return again || err != nil
}
