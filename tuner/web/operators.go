package web

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/kvtuner/kvtuner/tuner"
)

// operator is someone who may change what a pool does.
type operator struct {
	name string
	sum  [sha256.Size]byte // of the token
}

// Limits of a token file.
const (
	maxTokenFile = 64 << 10
	minToken     = 16
)

var (
	operatorName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,39}$`)
	errNoTokens  = errors.New("has no tokens; write one operator a line, as NAME TOKEN")
)

// readOperators reads a token file: one operator a line, a name, white space and
// a token of at least 16 characters. Empty lines and those that start with # are
// skipped. An error never holds a token.
func readOperators(path string) ([]operator, error) {
	raw, err := tuner.ReadFile(path, maxTokenFile)
	if err != nil {
		return nil, fmt.Errorf("web.tokenFile: %w", err)
	}
	operators, err := parseOperators(raw)
	if err != nil {
		return nil, fmt.Errorf("web.tokenFile: %q %w", path, err)
	}
	return operators, nil
}

func parseOperators(raw []byte) ([]operator, error) {
	var all []operator
	for n, line := range bytes.Split(raw, []byte("\n")) {
		fields := strings.Fields(string(line))
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		switch {
		case len(fields) != 2:
			return nil, fmt.Errorf("line %d has %d words; write NAME TOKEN", n+1, len(fields))
		case !operatorName.MatchString(fields[0]):
			return nil, fmt.Errorf("line %d: the name is not 1 to 40 letters, digits and . _ @ -", n+1)
		case len(fields[1]) < minToken:
			return nil, fmt.Errorf("line %d: the token of %s has %d characters; at least %d, such as from openssl rand -hex 32", n+1, fields[0], len(fields[1]), minToken)
		}
		all = append(all, operator{fields[0], sha256.Sum256([]byte(fields[1]))})
	}
	if len(all) == 0 {
		return nil, errNoTokens
	}
	return all, nil
}

// byToken finds the operator of a token. All are compared, in constant time.
func byToken(all []operator, token string) (found operator, ok bool) {
	sum := sha256.Sum256([]byte(token))
	for _, o := range all {
		if subtle.ConstantTimeCompare(sum[:], o.sum[:]) == 1 {
			found, ok = o, true
		}
	}
	return found, ok
}

// byCertificate is the operator whom a verified client certificate names.
func byCertificate(r *http.Request) (operator, bool) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || len(r.TLS.PeerCertificates) == 0 {
		return operator{}, false
	}
	c := r.TLS.PeerCertificates[0]
	names := append([]string{c.Subject.CommonName}, c.DNSNames...)
	for _, u := range c.URIs {
		names = append(names, u.String())
	}
	for _, name := range append(names, c.SerialNumber.String()) {
		if name = nameOnly(name); name != "" {
			return operator{name, sha256.Sum256(c.Raw)}, true
		}
	}
	return operator{}, false
}

// nameOnly makes a name of what a certificate says, so that it can break no log
// and no page.
func nameOnly(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < 0x80 && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._@-", r)) {
			return r
		}
		return '-'
	}, strings.TrimSpace(s))
	s = strings.Trim(s, "-._@")
	return s[:min(len(s), 40)]
}
