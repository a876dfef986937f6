package tuner

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
)

// Names of the series a sample is made of (vLLM's, as exposed; see
// https://docs.vllm.ai metrics); preset.go has those of other set-ups. Required
// ones make a sample unknown when an engine lacks them; the offload family is
// absent until its first event.
const (
	seriesE2ESum        = "vllm:e2e_request_latency_seconds_sum"
	seriesE2ECount      = "vllm:e2e_request_latency_seconds_count"
	seriesTTFTSum       = "vllm:time_to_first_token_seconds_sum"
	seriesTTFTCount     = "vllm:time_to_first_token_seconds_count"
	seriesTTFTBucket    = "vllm:time_to_first_token_seconds_bucket"
	seriesRunning       = "vllm:num_requests_running"
	seriesWaiting       = "vllm:num_requests_waiting"
	seriesGenerated     = "vllm:generation_tokens_total"
	seriesPromptTokens  = "vllm:prompt_tokens_total"
	seriesBySource      = "vllm:prompt_tokens_by_source_total"
	seriesFinished      = "vllm:request_success_total"
	seriesLookupDelay   = "vllm:kv_offload_lookup_async_delay_seconds_sum"
	seriesLoadTime      = "vllm:kv_offload_load_time_total"
	sourceExternal      = "external_kv_transfer"
	finishedWithError   = "error"
	labelSource         = "source"
	labelFinishedReason = "finished_reason"
)

// Names of the plugin's series.
const (
	seriesRevision     = "selective_kv_revision"
	seriesSource       = "selective_kv_source"
	seriesCostStarted  = "selective_kv_cost_started_total"
	seriesCostReusable = "selective_kv_cost_reusable_tokens_total"
	seriesCostFinished = "selective_kv_cost_finished_total"
	seriesCostTTFT     = "selective_kv_cost_ttft_seconds_total"
	seriesCostComputed = "selective_kv_cost_computed_tokens_total"
	seriesDecisions    = "selective_kv_decisions_total"
	seriesAdaptive     = "selective_kv_adaptive_permitted"
	labelAction        = "action"
	labelReason        = "reason"
	labelReusable      = "reusable"
	labelComputed      = "computed"
	computedUnknown    = "unknown"
	sourceExpired      = "expired"
)

var costSeries = []string{
	seriesCostStarted, seriesCostReusable, seriesCostFinished, seriesCostTTFT, seriesCostComputed,
}

var pluginSeries = append([]string{seriesRevision, seriesSource, seriesDecisions, seriesAdaptive}, costSeries...)

// lookbackScrapes is how far back a query reaches beyond its window, in scrape
// intervals. An engine silent for that long counts as deleted; silent for less
// it is dark, and the sample unknown.
const lookbackScrapes = 6

// engineQuery asks for the raw counters of every engine since lookback before
// the window: one query a sample, so that all series are of one instant, and
// raw points, so that windows neither overlap nor extrapolate.
func engineQuery(s Settings, window time.Duration) string {
	matchers := join(s.Selector, bucketMatcher(s.Guard))
	return rangeQuery(s.Metrics.names().asked, matchers, window+lookbackScrapes*s.ScrapeInterval)
}

func pluginQuery(s Settings, window time.Duration) string {
	return rangeQuery(pluginSeries, pluginSelector(s), window+lookbackScrapes*s.ScrapeInterval)
}

func pluginSelector(s Settings) string {
	if s.PluginSelector != "" {
		return s.PluginSelector
	}
	return fmt.Sprintf("pool=%q", s.Name)
}

func rangeQuery(names []string, matchers string, r time.Duration) string {
	quoted := strings.Join(names, "|")
	// Whole seconds, rounded up: a ticker's jitter is no part of the question.
	r = (r + time.Second - 1).Truncate(time.Second)
	return fmt.Sprintf("{%s}[%s]", join(fmt.Sprintf("__name__=~%q", quoted), matchers), model.Duration(r))
}

// bucketMatcher keeps, of the histogram buckets, only the one at the SLO; "le"
// is spelled "1" or "1.0" depending on the client that exposes it.
func bucketMatcher(g Guard) string {
	if g.Within == 0 {
		return `le=""`
	}
	edge := regexp.QuoteMeta(strconv.FormatFloat(g.TTFT.Seconds(), 'f', -1, 64))
	if !strings.Contains(edge, ".") {
		edge += `(\.0)?`
	}
	return fmt.Sprintf("le=~%q", "|"+edge)
}

func join(matchers ...string) string {
	var kept []string
	for _, m := range matchers {
		if m = strings.Trim(strings.TrimSpace(m), ","); m != "" {
			kept = append(kept, m)
		}
	}
	return strings.Join(kept, ",")
}

func checkMatchers(s string) error {
	if s == "" {
		return nil
	}
	p := parser.NewParser(parser.Options{})
	if _, err := p.ParseMetricSelector("{" + s + "}"); err != nil {
		return fmt.Errorf("%q is not a list of PromQL matchers such as namespace=\"llm\": %w", s, err)
	}
	return nil
}

func checkLabelName(s string) error {
	if s == "" {
		return errors.New("is empty; give the label's name, such as pod")
	}
	if !model.LegacyValidation.IsValidLabelName(s) {
		return fmt.Errorf("%q is not a label name", s)
	}
	return nil
}
