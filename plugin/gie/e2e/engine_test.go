//go:build e2e

package e2e

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/tinylib/msgp/msgp"
)

// Ports of all engines, each at an address of its own.
var (
	enginePort = ports(3)
	eventPort  = enginePort + 1
	replayPort = enginePort + 2
)

const (
	blockSize = 16
	gpuBlocks = 4
	cpuBlocks = 24
)

// hot is a prompt of which every engine holds 4 blocks on the GPU and 24 in CPU
// memory: a restore brings 320 tokens.
var hot = strings.TrimSpace(strings.Repeat("the quick brown fox jumps over a lazy dog while ", cpuBlocks*blockSize/10+1))

// cold is a prompt of more than a block that no engine knows.
const cold = "nothing of all this was ever said before by anyone to whom we spoke until today or yesterday or at all"

// arrival is a request as it reached an engine.
type arrival struct {
	path   string
	body   []byte
	engine string
}

// engine is a model server to those around it: metrics, KV events, tokenizer and
// completions. It keeps what it receives.
type engine struct {
	t    *testing.T
	name string
	ip   string

	mu       sync.Mutex
	waiting  int // negative: the metric is missing
	restored int
	arrived  map[string]arrival // by request ID

	announces bool
	stop      func()
}

// startEngine starts the engine of a pod. Its KV events are there to be replayed;
// an engine that announces sends them, too, again and again.
func startEngine(t *testing.T, index int, announces bool) *engine {
	e := &engine{t: t, name: fmt.Sprint("vllm-", index), ip: fmt.Sprint("127.0.0.", 10+index), arrived: map[string]arrival{}, announces: announces}
	e.start()
	t.Cleanup(func() { e.stop() })
	return e
}

func (e *engine) start() {
	e.t.Helper()
	listener, err := net.Listen("tcp", fmt.Sprintf("%s:%d", e.ip, enginePort))
	if err != nil {
		e.t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", e.metrics)
	mux.HandleFunc("POST /tokenize", tokenize)
	mux.HandleFunc("POST /v1/completions/render", render)
	mux.HandleFunc("POST /v1/chat/completions/render", render)
	mux.HandleFunc("POST /v1/", e.complete)
	server := &http.Server{Handler: mux}
	go server.Serve(listener)
	stopEvents := e.publish()
	e.stop = func() {
		server.Close()
		stopEvents()
	}
}

// restart is a crash: connections break, and nothing of the cache is left but
// what the engine learns again.
func (e *engine) restart() {
	e.stop()
	e.start()
}

func (e *engine) setWaiting(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waiting = n
}

func (e *engine) metrics(w http.ResponseWriter, _ *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.waiting >= 0 {
		fmt.Fprintf(w, "# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{engine=\"0\"} %d\n", e.waiting)
	}
	fmt.Fprintln(w, "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine=\"0\"} 1")
	fmt.Fprintln(w, "# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{engine=\"0\"} 0.5")
	fmt.Fprintf(w, "# TYPE vllm:prompt_tokens_by_source counter\nvllm:prompt_tokens_by_source_total{source=\"external_kv_transfer\"} %d\n", e.restored)
}

// words are the tokens of a text.
func words(text string) []uint32 {
	fields := strings.Fields(text)
	tokens := make([]uint32, len(fields))
	for i, word := range fields {
		h := fnv.New32a()
		io.WriteString(h, word)
		tokens[i] = h.Sum32() >> 8
	}
	return tokens
}

// prompted are the texts of a request.
type prompted struct {
	Prompt   any `json:"prompt"`
	Messages []struct {
		Content any `json:"content"`
	} `json:"messages"`
}

// texts has one entry a prompt; a chat is one.
func (p *prompted) texts() []string {
	if list, ok := p.Prompt.([]any); ok {
		texts := make([]string, len(list))
		for i, text := range list {
			texts[i] = fmt.Sprint(text)
		}
		return texts
	}
	text, _ := p.Prompt.(string)
	for _, m := range p.Messages {
		text += fmt.Sprint(m.Content, " ")
	}
	return []string{text}
}

func tokenize(w http.ResponseWriter, r *http.Request) {
	var in prompted
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	tokens := words(in.texts()[0])
	json.NewEncoder(w).Encode(map[string]any{"tokens": tokens, "count": len(tokens), "max_model_len": 1 << 20})
}

// render is tokenize as the producer of llm-d-router asks for it.
func render(w http.ResponseWriter, r *http.Request) {
	var in prompted
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	type rendered struct {
		Tokens []uint32 `json:"token_ids"`
	}
	var all []rendered
	for _, text := range in.texts() {
		all = append(all, rendered{words(text)})
	}
	if in.Messages != nil {
		json.NewEncoder(w).Encode(all[0])
		return
	}
	json.NewEncoder(w).Encode(all)
}

// complete records the request, restores what it may, and answers.
func (e *engine) complete(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var in struct {
		Stream bool            `json:"stream"`
		Params json.RawMessage `json:"kv_transfer_params"`
	}
	json.Unmarshal(body, &in)
	e.mu.Lock()
	e.arrived[r.Header.Get("x-request-id")] = arrival{r.URL.Path, body, e.name}
	e.restored += restore(in.Params)
	e.mu.Unlock()
	const usage = `"usage":{"prompt_tokens":390,"completion_tokens":3,"total_tokens":393}`
	if !in.Stream {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"object":"text_completion","choices":[{"text":"a b c"}],%s}`, usage)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	for _, token := range []string{"a", " b", " c"} {
		fmt.Fprintf(w, "data: {\"object\":\"text_completion\",\"choices\":[{\"text\":%q}]}\n\n", token)
		w.(http.Flusher).Flush()
	}
	fmt.Fprintf(w, "data: {\"object\":\"text_completion\",\"choices\":[],%s}\n\ndata: [DONE]\n\n", usage)
}

// restore is the number of tokens an engine loads under the request's limit.
func restore(params json.RawMessage) int {
	var limit struct {
		MaxLoadTokens *int `json:"max_load_tokens"`
	}
	loadable := (cpuBlocks - gpuBlocks) * blockSize
	if json.Unmarshal(params, &limit) != nil || limit.MaxLoadTokens == nil {
		return loadable
	}
	return min(loadable, *limit.MaxLoadTokens)
}

// publish sends the engine's KV events, and answers to replays.
func (e *engine) publish() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	history := [][]byte{stored("GPU", gpuBlocks), stored("CPU", cpuBlocks)}
	pub, router := zmq4.NewPub(ctx), zmq4.NewRouter(ctx)
	for socket, port := range map[zmq4.Socket]int{pub: eventPort, router: replayPort} {
		if err := socket.Listen(fmt.Sprintf("tcp://%s:%d", e.ip, port)); err != nil {
			e.t.Fatal(err)
		}
	}
	go replay(router, history)
	if e.announces {
		go announce(ctx, pub, fmt.Sprintf("kv@%s:%d@m", e.ip, enginePort), history)
	}
	return func() {
		cancel()
		pub.Close()
		router.Close()
	}
}

// announce repeats the history, for those who do not ask for a replay.
func announce(ctx context.Context, pub zmq4.Socket, topic string, history [][]byte) {
	ticks := time.NewTicker(50 * time.Millisecond)
	defer ticks.Stop()
	for number := 0; ; number++ {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
			pub.SendMulti(zmq4.NewMsgFrom([]byte(topic), sequence(uint64(number)), history[number%len(history)]))
		}
	}
}

func replay(router zmq4.Socket, history [][]byte) {
	const end = ^uint64(0)
	for {
		request, err := router.Recv()
		if err != nil {
			return
		}
		client := request.Frames[0]
		from := binary.BigEndian.Uint64(request.Frames[len(request.Frames)-1])
		for number := from; number < uint64(len(history)); number++ {
			router.SendMulti(zmq4.NewMsgFrom(client, nil, sequence(number), history[number]))
		}
		router.SendMulti(zmq4.NewMsgFrom(client, nil, sequence(end), nil))
	}
}

func sequence(number uint64) []byte { return binary.BigEndian.AppendUint64(nil, number) }

// stored is a batch of one event: the first blocks of the hot prompt.
func stored(medium string, blocks int) []byte {
	tokens := words(hot)[:blocks*blockSize]
	b := msgp.AppendArrayHeader(nil, 3)
	b = msgp.AppendFloat64(b, 1)
	b = msgp.AppendArrayHeader(b, 1)
	b = msgp.AppendArrayHeader(b, 7)
	b = msgp.AppendString(b, "BlockStored")
	b = msgp.AppendArrayHeader(b, uint32(blocks))
	for i := range blocks {
		b = msgp.AppendUint64(b, 1<<63+uint64(i))
	}
	b = msgp.AppendNil(b) // no parent
	b = msgp.AppendArrayHeader(b, uint32(len(tokens)))
	for _, token := range tokens {
		b = msgp.AppendUint32(b, token)
	}
	b = msgp.AppendInt(b, blockSize)
	b = msgp.AppendNil(b) // no adapter
	b = msgp.AppendString(b, medium)
	return msgp.AppendInt(b, 0) // data parallel rank
}
