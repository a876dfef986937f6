//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// envoy drives an EPP as Envoy does in full-duplex streaming mode, and sends the
// request on to where the EPP says.
type envoy struct {
	name   string
	client extproc.ExternalProcessorClient
	http   *http.Client
}

func newEnvoy(t *testing.T, port int) *envoy {
	t.Helper()
	conn, err := grpc.NewClient(fmt.Sprint("127.0.0.1:", port), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	t.Cleanup(func() {
		conn.Close()
		transport.CloseIdleConnections()
	})
	return &envoy{fmt.Sprint("epp:", port), extproc.NewExternalProcessorClient(conn), &http.Client{Transport: transport}}
}

// Errors of requests that were not answered.
var (
	errPicker = errors.New("the Endpoint Picker is away")
	errEngine = errors.New("the engine is away")
)

// refused is an answer of the EPP itself.
type refused struct {
	status int
	body   string
}

func (r *refused) Error() string {
	return fmt.Sprintf("the Endpoint Picker answers %d: %s", r.status, r.body)
}

var requests atomic.Int64

// newID is a request ID of this test.
func newID() string { return fmt.Sprintf("e2e-%d", requests.Add(1)) }

const chunk = 60_000

// patience is Envoy's with one request.
const patience = 20 * time.Second

// do sends one request and returns what the client receives.
func (e *envoy) do(ctx context.Context, id, path string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	stream, err := e.client.Process(ctx)
	if err != nil {
		return nil, errors.Join(errPicker, err)
	}
	if err := sendRequest(stream, id, path, body); err != nil {
		return nil, errors.Join(errPicker, err)
	}
	destination, body, err := receiveRequest(stream)
	if err != nil {
		return nil, err
	}
	response, err := e.forward(ctx, destination, id, path, body)
	if err != nil {
		return nil, errors.Join(errEngine, err)
	}
	defer response.Body.Close()
	return relay(stream, response)
}

func sendRequest(stream extproc.ExternalProcessor_ProcessClient, id, path string, body []byte) error {
	err := stream.Send(&extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_RequestHeaders{
		RequestHeaders: &extproc.HttpHeaders{Headers: headers(
			":method", "POST", ":path", path, "content-type", "application/json", "x-request-id", id)},
	}})
	for _, part := range parts(body) {
		if err != nil {
			return err
		}
		err = stream.Send(&extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_RequestBody{RequestBody: part}})
	}
	return err
}

func headers(pairs ...string) *core.HeaderMap {
	m := &core.HeaderMap{}
	for pair := range slices.Chunk(pairs, 2) {
		m.Headers = append(m.Headers, &core.HeaderValue{Key: pair[0], RawValue: []byte(pair[1])})
	}
	return m
}

// parts are the pieces of a body, the last with the end of the stream.
func parts(body []byte) []*extproc.HttpBody {
	var all []*extproc.HttpBody
	for piece := range slices.Chunk(body, chunk) {
		all = append(all, &extproc.HttpBody{Body: piece})
	}
	return append(all, &extproc.HttpBody{EndOfStream: true})
}

// receiveRequest is where to send, and what.
func receiveRequest(stream extproc.ExternalProcessor_ProcessClient) (destination string, body []byte, err error) {
	for {
		answer, err := stream.Recv()
		if err != nil {
			return "", nil, errors.Join(errPicker, err)
		}
		switch r := answer.Response.(type) {
		case *extproc.ProcessingResponse_ImmediateResponse:
			return "", nil, &refused{int(r.ImmediateResponse.GetStatus().GetCode()), string(r.ImmediateResponse.GetBody())}
		case *extproc.ProcessingResponse_RequestHeaders:
			for _, set := range r.RequestHeaders.GetResponse().GetHeaderMutation().GetSetHeaders() {
				if set.GetHeader().GetKey() == "x-gateway-destination-endpoint" {
					destination = string(set.GetHeader().GetRawValue())
				}
			}
		case *extproc.ProcessingResponse_RequestBody:
			part := r.RequestBody.GetResponse().GetBodyMutation().GetStreamedResponse()
			body = append(body, part.GetBody()...)
			if part.GetEndOfStream() {
				return destination, body, nil
			}
		}
	}
}

func (e *envoy) forward(ctx context.Context, destination, id, path string, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+destination+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("x-request-id", id)
	return e.http.Do(request)
}

// relay takes the engine's answer through the EPP, piece by piece. An EPP that
// goes away meanwhile costs nothing: Envoy is told to go on without it.
func relay(stream extproc.ExternalProcessor_ProcessClient, response *http.Response) ([]byte, error) {
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		for {
			if _, err := stream.Recv(); err != nil {
				return
			}
		}
	}()
	stream.Send(&extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_ResponseHeaders{
		ResponseHeaders: &extproc.HttpHeaders{Headers: headers(
			":status", fmt.Sprint(response.StatusCode), "content-type", response.Header.Get("Content-Type"))},
	}})
	var whole []byte
	buffer := make([]byte, 4096)
	for {
		n, err := response.Body.Read(buffer)
		piece := bytes.Clone(buffer[:n])
		whole = append(whole, piece...)
		stream.Send(&extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_ResponseBody{
			ResponseBody: &extproc.HttpBody{Body: piece, EndOfStream: err == io.EOF},
		}})
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, errors.Join(errEngine, err)
		}
	}
	stream.CloseSend()
	<-returned
	return whole, nil
}
