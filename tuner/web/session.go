package web

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	sessionCookie = "kvtuner_session"
	sessionLength = 8 * time.Hour
)

// open a session for an operator who has shown a token.
func (g *gate) open(w http.ResponseWriter, r *http.Request, o operator, now time.Time) {
	expiry := strconv.FormatInt(now.Add(sessionLength).Unix(), 10)
	http.SetCookie(w, &http.Cookie{
		Name: sessionCookie, Value: o.name + "|" + expiry + "|" + g.sign("session", o.name, expiry, string(o.sum[:])),
		Path: "/", MaxAge: int(sessionLength.Seconds()), HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode,
	})
}

// visitor is who looks at the page: by session, or by certificate. A session ends
// with its token.
func (g *gate) visitor(r *http.Request, now time.Time) (operator, bool) {
	if o, ok := byCertificate(r); ok && g.certificates {
		return o, true
	}
	cookie, err := r.Cookie(sessionCookie)
	if err != nil || g.tokenFile == "" {
		return operator{}, false
	}
	parts := strings.Split(cookie.Value, "|")
	if len(parts) != 3 {
		return operator{}, false
	}
	expiry, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil || now.Unix() >= expiry {
		return operator{}, false
	}
	all, err := readOperators(g.tokenFile)
	if err != nil {
		return operator{}, false
	}
	for _, o := range all {
		if o.name == parts[0] && hmac.Equal([]byte(parts[2]), []byte(g.sign("session", parts[0], parts[1], string(o.sum[:])))) {
			return o, true
		}
	}
	return operator{}, false
}

// form is what a page's form must bring along, so that no other site can have
// made it.
func (g *gate) form(o operator) string { return g.sign("form", o.name, string(o.sum[:])) }

func (g *gate) made(o operator, form string) bool {
	return hmac.Equal([]byte(form), []byte(g.form(o)))
}

func (g *gate) sign(parts ...string) string {
	m := hmac.New(sha256.New, g.key[:])
	for _, p := range parts {
		m.Write([]byte(strconv.Itoa(len(p)) + ":" + p))
	}
	return base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}
