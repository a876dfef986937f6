package web

import (
	"crypto/rand"
	"net/http"
	"strings"
	"time"
)

// gate decides who may change something. It is closed to all while neither
// tokens nor client certificates are configured.
type gate struct {
	tokenFile    string
	certificates bool
	origin       *http.CrossOriginProtection
	failures     *clients
	commands     *clients // by pool
	key          [32]byte // of sessions and forms; a restart ends them
}

// Limits on attempts. A client that failed too often is refused before its token
// is looked at.
const (
	failureBurst, failureEvery = 10, 6 * time.Second
	commandBurst, commandEvery = 20, 3 * time.Second
)

func newGate(o Options) (*gate, error) {
	g := &gate{
		tokenFile: o.TokenFile, certificates: o.ClientCertificates, origin: http.NewCrossOriginProtection(),
		failures: newClients(failureBurst, failureEvery), commands: newClients(commandBurst, commandEvery),
	}
	_, _ = rand.Read(g.key[:]) // crypto/rand.Read never returns an error
	if o.TokenFile != "" {
		if _, err := readOperators(o.TokenFile); err != nil {
			return nil, err
		}
	}
	return g, nil
}

func (g *gate) closed() bool { return g.tokenFile == "" && !g.certificates }

const readOnlyAdvice = "this daemon is read-only; set web.tokenFile, or web.tls.clientCAFile, in its configuration to let operators command it"

// admit lets a request to change something come to authentication.
func (g *gate) admit(r *http.Request, now time.Time) error {
	switch {
	case g.closed():
		return &Error{CodeForbidden, readOnlyAdvice}
	case g.origin.Check(r) != nil:
		return &Error{CodeForbidden, "the request comes from a page of another site"}
	case !g.failures.may(clientOf(r), now):
		return &Error{CodeLimit, "too many failed attempts; wait a minute"}
	}
	return nil
}

// token authenticates; the file is read each time, so that a token is void as
// soon as it is taken out.
func (g *gate) token(token string) (operator, error) {
	if g.tokenFile == "" {
		return operator{}, &Error{CodeUnauthorized, "no tokens are configured; use a client certificate"}
	}
	all, err := readOperators(g.tokenFile)
	if err != nil {
		return operator{}, err
	}
	o, ok := byToken(all, token)
	if !ok {
		return operator{}, &Error{CodeUnauthorized, "the token is not known"}
	}
	return o, nil
}

// client authenticates a program: a bearer token, or a client certificate.
func (g *gate) client(r *http.Request) (operator, error) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") {
		return g.token(strings.TrimSpace(token))
	}
	if o, ok := byCertificate(r); ok && g.certificates {
		return o, nil
	}
	return operator{}, &Error{CodeUnauthorized, "this needs a token, as \"Authorization: Bearer TOKEN\", or a client certificate"}
}
