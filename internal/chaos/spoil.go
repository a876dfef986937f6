package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

// spoil answers a query as a fault makes it; missing tells that data is missing
// from the answer, or not to be believed.
func spoil(k Kind, q query) (r result, missing bool) {
	switch k {
	case promDown:
		return overHTTP(q, func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") }), true
	case promSlow:
		return result{err: fmt.Errorf("post: %w", context.DeadlineExceeded)}, true
	case promStatus:
		status := []int{400, 401, 404, 422, 429, 500, 502, 503, 504}[q.rng.IntN(9)]
		return overHTTP(q, reply(status, "<html><body>Bad Gateway</body></html>")), true
	case promTruncated:
		body := encode(q.answer)
		return overHTTP(q, reply(http.StatusOK, body[:q.rng.IntN(len(body))])), true
	case promPartial:
		return result{value: q.answer[:len(q.answer)/2], warnings: promv1.Warnings{"a store gateway did not answer"}}, true
	case promEmpty:
		return result{value: model.Matrix{}}, true
	case promDuplicate:
		return result{value: duplicate(q)}, false
	case promNotNumber:
		return result{value: notANumber(q)}, len(q.answer) > 0
	}
	return result{value: q.answer}, false
}

func reply(status int, body string) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(body)), Header: http.Header{}, Request: r}, nil
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// overHTTP lets the real client read what a server sent.
func overHTTP(q query, f roundTrip) result {
	client, err := api.NewClient(api.Config{Address: "http://prometheus.invalid", RoundTripper: f})
	if err != nil {
		return result{err: err}
	}
	value, warnings, _, err := promv1.NewAPI(client).Query(q.ctx, q.text, q.at)
	return result{value, warnings, err}
}

func encode(m model.Matrix) string {
	var b bytes.Buffer
	err := json.NewEncoder(&b).Encode(map[string]any{"status": "success", "data": map[string]any{"resultType": "matrix", "result": m}})
	if err != nil {
		return `{"status":"error"}` // NaN, which is not drawn together with this
	}
	return strings.TrimSpace(b.String())
}

// duplicate repeats the series of one name under another label, as a second
// scrape job does.
func duplicate(q query) model.Matrix {
	out := slices.Clone(q.answer)
	if len(out) == 0 {
		return out
	}
	pod := out[q.rng.IntN(len(out))].Metric["pod"]
	for _, row := range q.answer {
		if row.Metric["pod"] == pod {
			m := row.Metric.Clone()
			m["job"] = "again"
			out = append(out, &model.SampleStream{Metric: m, Values: slices.Clone(row.Values)})
		}
	}
	return out
}

// notANumber makes the latest values of one name no numbers: that name's
// increase, value or revision is then unknown.
func notANumber(q query) model.Matrix {
	bad := []model.SampleValue{model.SampleValue(math.NaN()), model.SampleValue(math.Inf(1)), -1, model.SampleValue(math.Inf(-1))}
	if len(q.answer) == 0 {
		return q.answer
	}
	name := model.LabelValue("selective_kv_revision")
	if !isPlugin(q.text) {
		name = model.LabelValue(exposed[q.rng.IntN(int(promptTokens)+1)].name)
	}
	value := bad[q.rng.IntN(len(bad))]
	for _, row := range q.answer {
		if row.Metric[model.MetricNameLabel] == name {
			for i := range row.Values {
				row.Values[i].Value = value
			}
		}
	}
	return q.answer
}
