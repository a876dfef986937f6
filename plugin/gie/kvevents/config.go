package kvevents

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"
)

// Config says where events are, how much to remember, and how to get at tokens.
type Config struct {
	// Port of the engines' event socket. An endpoint whose name ends in
	// "-rank-N" is data parallel rank N, and the engine adds N to both ports.
	Port int
	// ReplayPort of the engines' replay socket; 0 is none: a lost message then
	// costs all that is known of the endpoint.
	ReplayPort int
	// Topic is what the topics of messages begin with; empty takes all.
	Topic string
	// BlockSize in tokens; 0 takes it from each engine's first event.
	BlockSize int
	// OffloadChunkBlocks is how many blocks the engine moves as one to the tiers
	// below the GPU; 0 trusts the events, of which recent ones do not say.
	OffloadChunkBlocks int
	// MaxBlocks remembered of an endpoint, over all tiers, at about 160 bytes.
	MaxBlocks int
	// MaxMessageBytes of one message.
	MaxMessageBytes int
	// Settle is how long an endpoint gives no evidence once messages are known
	// to be missing.
	Settle time.Duration
	// Timeout of connecting, and of each message of a replay.
	Timeout time.Duration
	// MaxPromptTokens of one request, over all its prompts.
	MaxPromptTokens int
	// Tokenizer for prompts of text; nil leaves them without evidence.
	Tokenizer *TokenizerConfig
}

// TokenizerConfig is how texts become tokens: by vLLM's POST /tokenize.
type TokenizerConfig struct {
	// URL of a server that has it; empty asks one of the request's candidate
	// endpoints.
	URL string
	// Timeout of one request.
	Timeout time.Duration
	// CacheTokens is how many tokens of past texts to keep, at 4 bytes.
	CacheTokens int
	// MaxConcurrent calls; requests beyond have no evidence.
	MaxConcurrent int
}

// Defaults.
const (
	defaultPort            = 5557
	defaultMaxBlocks       = 1 << 18
	defaultMaxMessageBytes = 16 << 20
	defaultSettle          = 5 * time.Minute
	defaultTimeout         = 5 * time.Second
	defaultMaxPromptTokens = 1 << 20
	defaultTokenizeTimeout = 100 * time.Millisecond
	defaultCacheTokens     = 1 << 22
	defaultMaxConcurrent   = 64
)

// maxPrepare is how long the framework lets all data producers together work on
// one request.
const maxPrepare = 400 * time.Millisecond

type duration time.Duration

func (d *duration) UnmarshalJSON(b []byte) error {
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return fmt.Errorf("%s is not a duration: want a string such as \"5m\"", b)
	}
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%q is not a duration: want a string such as \"5m\"", text)
	}
	*d = duration(parsed)
	return nil
}

type configJSON struct {
	Port               int            `json:"port"`
	ReplayPort         int            `json:"replayPort"`
	Topic              string         `json:"topic"`
	BlockSize          int            `json:"blockSize"`
	OffloadChunkBlocks int            `json:"offloadChunkBlocks"`
	MaxBlocks          int            `json:"maxBlocks"`
	MaxMessageBytes    int            `json:"maxMessageBytes"`
	Settle             duration       `json:"settle"`
	Timeout            duration       `json:"timeout"`
	MaxPromptTokens    int            `json:"maxPromptTokens"`
	Tokenizer          *tokenizerJSON `json:"tokenizer"`
}

type tokenizerJSON struct {
	URL           string   `json:"url"`
	Timeout       duration `json:"timeout"`
	CacheTokens   int      `json:"cacheTokens"`
	MaxConcurrent int      `json:"maxConcurrent"`
}

// UnmarshalJSON takes the defaults for what is absent.
func (t *tokenizerJSON) UnmarshalJSON(b []byte) error {
	type plain tokenizerJSON
	p := plain{Timeout: duration(defaultTokenizeTimeout), CacheTokens: defaultCacheTokens, MaxConcurrent: defaultMaxConcurrent}
	if err := strict(b, &p); err != nil {
		return fmt.Errorf("tokenizer: %w", err)
	}
	*t = tokenizerJSON(p)
	return nil
}

func strict(b []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return err
	}
	if d.More() {
		return errors.New("something follows the object")
	}
	return nil
}

// ParseConfig reads the plugin's parameters: JSON, no unknown fields. None at
// all are the defaults.
func ParseConfig(raw json.RawMessage) (*Config, error) {
	in := configJSON{
		Port:            defaultPort,
		MaxBlocks:       defaultMaxBlocks,
		MaxMessageBytes: defaultMaxMessageBytes,
		Settle:          duration(defaultSettle),
		Timeout:         duration(defaultTimeout),
		MaxPromptTokens: defaultMaxPromptTokens,
	}
	if len(raw) > 0 {
		if err := strict(raw, &in); err != nil {
			return nil, fmt.Errorf("parameters of %s: %w", Type, err)
		}
	}
	c := in.config()
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("parameters of %s: %w", Type, err)
	}
	return c, nil
}

func (in *configJSON) config() *Config {
	c := &Config{
		Port:               in.Port,
		ReplayPort:         in.ReplayPort,
		Topic:              in.Topic,
		BlockSize:          in.BlockSize,
		OffloadChunkBlocks: in.OffloadChunkBlocks,
		MaxBlocks:          in.MaxBlocks,
		MaxMessageBytes:    in.MaxMessageBytes,
		Settle:             time.Duration(in.Settle),
		Timeout:            time.Duration(in.Timeout),
		MaxPromptTokens:    in.MaxPromptTokens,
	}
	if t := in.Tokenizer; t != nil {
		c.Tokenizer = &TokenizerConfig{t.URL, time.Duration(t.Timeout), t.CacheTokens, t.MaxConcurrent}
	}
	return c
}

// Validate reports everything that is wrong, by the name of the setting.
func (c *Config) Validate() error {
	const maxPort = 65535
	errs := []error{
		within("port", c.Port, 1, maxPort),
		within("replayPort", c.ReplayPort, 0, maxPort),
		within("blockSize", c.BlockSize, 0, 1<<16),
		within("offloadChunkBlocks", c.OffloadChunkBlocks, 0, 1<<16),
		within("maxBlocks", c.MaxBlocks, 1, 1<<26),
		within("maxMessageBytes", c.MaxMessageBytes, 1<<10, 1<<30),
		within("settle", c.Settle, 0, 24*time.Hour),
		within("timeout", c.Timeout, 10*time.Millisecond, time.Minute),
		within("maxPromptTokens", c.MaxPromptTokens, 1, 1<<26),
	}
	if c.ReplayPort == c.Port {
		errs = append(errs, fmt.Errorf("replayPort: %d is the port of events, too", c.ReplayPort))
	}
	if t := c.Tokenizer; t != nil {
		errs = append(errs,
			t.validateURL(),
			within("tokenizer.timeout", t.Timeout, time.Millisecond, maxPrepare),
			within("tokenizer.cacheTokens", t.CacheTokens, 0, 1<<28),
			within("tokenizer.maxConcurrent", t.MaxConcurrent, 1, 1<<12))
	}
	return errors.Join(errs...)
}

func (t *TokenizerConfig) validateURL() error {
	if t.URL == "" {
		return nil
	}
	u, err := url.Parse(t.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("tokenizer.url: %q: want http://host:port or https://host:port", t.URL)
	}
	return nil
}

func within[T int | time.Duration](name string, v, low, high T) error {
	if v < low || v > high {
		return fmt.Errorf("%s: %v is not between %v and %v", name, v, low, high)
	}
	return nil
}
