package web

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// clients limits what each of many may do. It remembers at most maxClients and
// forgets all of them when there are more.
type clients struct {
	burst int
	every time.Duration

	mu  sync.Mutex
	all map[string]*rate.Limiter
}

const maxClients = 1024

func newClients(burst int, every time.Duration) *clients {
	return &clients{burst: burst, every: every, all: map[string]*rate.Limiter{}}
}

func (c *clients) of(name string) *rate.Limiter {
	c.mu.Lock()
	defer c.mu.Unlock()
	l, ok := c.all[name]
	if !ok {
		if len(c.all) >= maxClients {
			clear(c.all)
		}
		l = rate.NewLimiter(rate.Every(c.every), c.burst)
		c.all[name] = l
	}
	return l
}

// may tells whether one more is allowed, without counting it; count counts it,
// and tells whether it was.
func (c *clients) may(name string, now time.Time) bool { return c.of(name).TokensAt(now) >= 1 }

func (c *clients) count(name string, now time.Time) bool { return c.of(name).AllowN(now, 1) }

// clientOf is the address a request comes from; IPv6 clients own a /64.
func clientOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	a, err := netip.ParseAddr(host)
	if err != nil || a.Unmap().Is4() {
		return host
	}
	return netip.PrefixFrom(a, 64).Masked().String()
}
