package kvevents

import (
	"bytes"
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// Tokenizer turns texts into the tokens that the engine makes of them.
type Tokenizer interface {
	// Tokenize returns the tokens of one prompt. body is a request of vLLM's
	// POST /tokenize: the fields of a completion or chat request that matter.
	// server is "host:port" of an engine of the model. It returns within the
	// time that its configuration gives it, and is called concurrently; the
	// tokens are not changed by the caller.
	Tokenize(ctx context.Context, server string, body []byte) ([]uint32, error)
}

// ErrTokenizerBusy says that as many calls are under way as are allowed.
var ErrTokenizerBusy = errors.New("tokenizer: too many calls under way")

// httpTokenizer asks vLLM's POST /tokenize and remembers the answers.
type httpTokenizer struct {
	url     string // instead of the server given
	timeout time.Duration
	client  *http.Client
	calls   chan struct{}
	cache   *tokenCache
	metrics *metrics
}

func newHTTPTokenizer(c *TokenizerConfig, m *metrics) *httpTokenizer {
	return &httpTokenizer{
		url:     c.URL,
		timeout: c.Timeout,
		client:  &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: c.MaxConcurrent, IdleConnTimeout: time.Minute}},
		calls:   make(chan struct{}, c.MaxConcurrent),
		cache:   newTokenCache(c.CacheTokens),
		metrics: m,
	}
}

func (t *httpTokenizer) Tokenize(ctx context.Context, server string, body []byte) ([]uint32, error) {
	key := sha256.Sum256(body)
	if tokens, ok := t.cache.get(key); ok {
		t.metrics.tokenizerHits.Inc()
		return tokens, nil
	}
	select {
	case t.calls <- struct{}{}:
		defer func() { <-t.calls }()
	default:
		return nil, ErrTokenizerBusy
	}
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	tokens, err := t.ask(ctx, server, body)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	t.cache.put(key, tokens)
	return tokens, nil
}

func (t *httpTokenizer) ask(ctx context.Context, server string, body []byte) ([]uint32, error) {
	const maxAnswer = 16 << 20
	t.metrics.tokenizerCalls.Inc()
	base := t.url
	if base == "" {
		base = "http://" + server
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/tokenize", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := t.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", r.URL, answer.Status)
	}
	var out struct {
		Tokens []uint32 `json:"tokens"`
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxAnswer)).Decode(&out); err != nil {
		return nil, fmt.Errorf("%s: %w", r.URL, err)
	}
	if out.Tokens == nil {
		return nil, fmt.Errorf("%s: no tokens in the answer", r.URL)
	}
	return out.Tokens, nil
}

// tokenCache keeps the answers used last, up to a number of tokens in all.
type tokenCache struct {
	mu    sync.Mutex
	max   int
	held  int
	order list.List // of *tokenEntry, the last used first
	byKey map[[sha256.Size]byte]*list.Element
}

type tokenEntry struct {
	key    [sha256.Size]byte
	tokens []uint32
}

// entryCost is what an entry costs besides its tokens, in tokens.
const entryCost = 64

func newTokenCache(limit int) *tokenCache {
	return &tokenCache{max: limit, byKey: map[[sha256.Size]byte]*list.Element{}}
}

func (c *tokenCache) get(key [sha256.Size]byte) ([]uint32, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.byKey[key]
	if !ok {
		return nil, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*tokenEntry).tokens, true
}

func (c *tokenCache) put(key [sha256.Size]byte, tokens []uint32) {
	cost := len(tokens) + entryCost
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.byKey[key]; ok || cost > c.max {
		return
	}
	for c.held+cost > c.max {
		oldest := c.order.Remove(c.order.Back()).(*tokenEntry)
		delete(c.byKey, oldest.key)
		c.held -= len(oldest.tokens) + entryCost
	}
	c.byKey[key] = c.order.PushFront(&tokenEntry{key, tokens})
	c.held += cost
}
