package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
)

// ErrGuideLLM is wrapped by errors about a report whose layout is not known.
var ErrGuideLLM = errors.New("not the JSON report of GuideLLM 0.3 to 0.7")

// GuideLLMOptions say what a GuideLLM report does not.
type GuideLLMOptions struct {
	// Report names the series of measurements.
	Report string
	// Setting is the policy that the fleet ran.
	Setting Setting
	// PrefixTokens is the shared prefix of the prompts; 0 takes the
	// prefix_tokens of the report's own data configuration.
	PrefixTokens int
	// Told, if set, is told the mean tokens of each benchmark's prompts, after
	// the prefix, and outputs, where the report has them.
	Told func(newTokens, outputTokens int)
}

// ReadGuideLLM turns each benchmark of a GuideLLM report into a measurement.
// They must be closed loop: strategy concurrent, synchronous, or throughput with
// a bound. What a report does not have, such as the external share, stays nil.
func ReadGuideLLM(r io.Reader, o GuideLLMOptions) ([]Measurement, error) {
	var report guideReport
	if err := json.NewDecoder(r).Decode(&report); err != nil {
		switch {
		case errors.Is(err, io.EOF):
			err = errors.New("the file is empty")
		case errors.Is(err, io.ErrUnexpectedEOF):
			err = errors.New("the file ends in the middle of its JSON object")
		}
		return nil, fmt.Errorf("read GuideLLM report: %w: %w", ErrGuideLLM, err)
	}
	if len(report.Benchmarks) == 0 {
		return nil, fmt.Errorf("read GuideLLM report: %w: no benchmarks in it", ErrGuideLLM)
	}
	var all []Measurement
	for i, b := range report.Benchmarks {
		m, err := b.measurement(o, report)
		if err == nil {
			err = m.check()
		}
		if err != nil {
			return nil, fmt.Errorf("read GuideLLM report: benchmark %d: %w", i+1, err)
		}
		all = append(all, m)
		if prompt, answer := b.Metrics.Prompt.mean(), b.Metrics.Answer.mean(); prompt != nil && answer != nil && o.Told != nil {
			o.Told(int(*prompt)-m.PrefixTokens, int(math.Round(*answer)))
		}
	}
	if err := checkRepeats(all); err != nil {
		return nil, fmt.Errorf("read GuideLLM report: %w", err)
	}
	return all, nil
}

// guideReport is the part of a report that is needed. Strategies are under
// config since 0.4, under args before; the data configuration has moved more
// often.
type guideReport struct {
	Args       json.RawMessage  `json:"args"`
	Config     json.RawMessage  `json:"config"`
	Benchmarks []guideBenchmark `json:"benchmarks"`
}

type guideBenchmark struct {
	Args    guideConfig     `json:"args"`
	Config  guideConfig     `json:"config"`
	Loader  json.RawMessage `json:"request_loader"`
	Metrics guideMetrics    `json:"metrics"`
}

type guideConfig struct {
	Strategy *guideStrategy  `json:"strategy"`
	Requests json.RawMessage `json:"requests"`
}

type guideStrategy struct {
	Type           string `json:"type_"`
	Streams        *int   `json:"streams"`
	MaxConcurrency *int   `json:"max_concurrency"`
}

type guideMetrics struct {
	Requests guideStatus `json:"requests_per_second"`
	Output   guideStatus `json:"output_tokens_per_second"`
	TTFT     guideStatus `json:"time_to_first_token_ms"`
	ITL      guideStatus `json:"inter_token_latency_ms"`
	Prompt   guideStatus `json:"prompt_token_count"`
	Answer   guideStatus `json:"output_token_count"`
}

type guideStatus struct {
	Successful *guideSummary `json:"successful"`
}

type guideSummary struct {
	Mean        *float64 `json:"mean"`
	Count       *int     `json:"count"`
	Percentiles struct {
		P99 *float64 `json:"p99"`
	} `json:"percentiles"`
}

// mean and p99 are nil where nothing was counted: GuideLLM writes 0 there.
func (s guideStatus) mean() *float64 {
	if s.empty() {
		return nil
	}
	return s.Successful.Mean
}

func (s guideStatus) p99() *float64 {
	if s.empty() {
		return nil
	}
	return s.Successful.Percentiles.P99
}

func (s guideStatus) empty() bool {
	return s.Successful == nil || s.Successful.Count != nil && *s.Successful.Count == 0
}

func (b guideBenchmark) measurement(o GuideLLMOptions, report guideReport) (Measurement, error) {
	strategy := b.Config.Strategy
	if strategy == nil {
		strategy = b.Args.Strategy
	}
	if strategy == nil {
		return Measurement{}, fmt.Errorf("%w: it has neither config.strategy nor args.strategy", ErrGuideLLM)
	}
	streams, err := strategy.streams()
	if err != nil {
		return Measurement{}, err
	}
	if b.Metrics.Requests.Successful == nil || b.Metrics.Requests.Successful.Mean == nil {
		return Measurement{}, fmt.Errorf("%w: it has no metrics.requests_per_second.successful.mean", ErrGuideLLM)
	}
	rate := b.Metrics.Requests.mean()
	if rate == nil || *rate == 0 {
		return Measurement{}, errors.New("no request succeeded")
	}
	prefix, err := b.prefix(o, report)
	if err != nil {
		return Measurement{}, err
	}
	return Measurement{
		Report: o.Report, PrefixTokens: prefix, Concurrency: streams, Setting: o.Setting,
		RequestsPerSecond:     *rate,
		OutputTokensPerSecond: b.Metrics.Output.mean(),
		TTFTMeanMS:            b.Metrics.TTFT.mean(), TTFTP99MS: b.Metrics.TTFT.p99(),
		ITLMeanMS: b.Metrics.ITL.mean(), ITLP99MS: b.Metrics.ITL.p99(),
	}, nil
}

func (s guideStrategy) streams() (int, error) {
	switch {
	case s.Type == "synchronous":
		return 1, nil
	case s.Type == "concurrent" && s.Streams != nil:
		return *s.Streams, nil
	case s.Type == "throughput" && s.MaxConcurrency != nil:
		return *s.MaxConcurrency, nil
	}
	return 0, fmt.Errorf("strategy %q is not closed loop; measure with concurrent streams", s.Type)
}

// prefixSetting finds the prefix in a data configuration, whether that is JSON,
// text of key=value, or JSON in a string.
var prefixSetting = regexp.MustCompile(`prefix_tokens[\\"']*\s*[:=]\s*[\\"']*(\d+)`)

func (b guideBenchmark) prefix(o GuideLLMOptions, report guideReport) (int, error) {
	tokens := o.PrefixTokens
	if tokens == 0 {
		var err error
		if tokens, err = b.statedPrefix(report); err != nil {
			return 0, err
		}
	}
	if prompt := b.Metrics.Prompt.mean(); prompt != nil && float64(tokens) > *prompt {
		return 0, fmt.Errorf("a prefix of %d tokens in prompts of %v", tokens, *prompt)
	}
	return tokens, nil
}

func (b guideBenchmark) statedPrefix(report guideReport) (int, error) {
	stated := ""
	for _, raw := range []json.RawMessage{b.Config.Requests, b.Loader, report.Args, report.Config} {
		for _, found := range prefixSetting.FindAllSubmatch(raw, -1) {
			if text := string(found[1]); stated != "" && stated != text {
				return 0, fmt.Errorf("prefixes of %s and of %s tokens; say which with --prefix-tokens", stated, text)
			}
			stated = string(found[1])
		}
	}
	tokens, err := strconv.Atoi(stated)
	if err != nil {
		return 0, errors.New("it does not say how long the shared prefix was; say so with --prefix-tokens")
	}
	return tokens, nil
}
