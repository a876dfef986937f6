package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/tuner"
)

// errRefused means that another attempt would be refused, too.
var errRefused = errors.New("refused")

// send makes one attempt. Its errors have neither URL nor token.
func (n *Notifier) send(ctx context.Context, t tuner.NotificationConfig, d store.Decision) error {
	body, err := render(t.Format, d)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	request, err := newRequest(ctx, t, body)
	if err != nil {
		return err
	}
	response, err := n.o.Client.Do(request)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		return err
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<16)) // so that the connection is used again
	return judge(response.StatusCode)
}

// judge a status: a server in trouble or in a hurry may be asked again.
func judge(status int) error {
	switch {
	case status/100 == 2:
		return nil
	case status/100 == 5 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout:
		return fmt.Errorf("the target answered %d", status)
	}
	return fmt.Errorf("the target answered %d: %w", status, errRefused)
}

func newRequest(ctx context.Context, t tuner.NotificationConfig, body []byte) (*http.Request, error) {
	address := t.URL
	if t.URLFile != "" {
		read, err := tuner.ReadFile(t.URLFile, tuner.MaxFile)
		if err != nil {
			return nil, fmt.Errorf("urlFile: %w", err)
		}
		address = strings.TrimSpace(string(read))
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil || request.URL.Host == "" {
		return nil, fmt.Errorf("the target's URL is none: %w", errRefused)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "kvtuner")
	if t.TokenFile != "" {
		token, err := tuner.ReadFile(t.TokenFile, tuner.MaxFile)
		if err != nil {
			return nil, fmt.Errorf("tokenFile: %w", err)
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	return request, nil
}

// message is the JSON of format "json": the record without its evidence, and a
// sentence.
type message struct {
	Text string `json:"text"`
	store.Decision
}

func render(format string, d store.Decision) ([]byte, error) {
	text := fmt.Sprintf("kvtuner, pool %s: %s", d.Pool, d.Kind)
	if d.From != d.To {
		text += fmt.Sprintf(" %s -> %s", d.From, d.To)
	}
	text += fmt.Sprintf(". %s (%s)", d.Reason, d.ID)
	if format == tuner.NotifySlack {
		return json.Marshal(map[string]string{"text": slackEscaper.Replace(text)})
	}
	return json.Marshal(message{Text: text, Decision: d})
}

// slackEscaper keeps text from being read as a mention or a link.
var slackEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
