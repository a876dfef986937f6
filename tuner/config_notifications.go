package tuner

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kvtuner/kvtuner/store"
)

// NotificationConfig is one webhook that is told of decisions.
type NotificationConfig struct {
	// Name of the target in the log and in metrics.
	Name string `mapstructure:"name"`
	// Format is json, the record of the decision, or slack, which Mattermost, Google
	// Chat and others take, too.
	Format string `mapstructure:"format"`
	// URL of the webhook, or URLFile that holds it: a webhook's address is often a
	// secret. TokenFile holds a token to send as "Authorization: Bearer". Files are
	// read at each use.
	URL       string `mapstructure:"url"`
	URLFile   string `mapstructure:"urlFile"`
	TokenFile string `mapstructure:"tokenFile"`
	// Kinds of decisions; empty are those that change what is in force, or stop or
	// resume tuning. Pools; empty are all.
	Kinds []store.Kind `mapstructure:"kinds"`
	Pools []string     `mapstructure:"pools"`
}

// Formats of notifications.
const (
	NotifyJSON  = "json"
	NotifySlack = "slack"
)

// usuallyTold are the kinds a target gets that names none.
var usuallyTold = []store.Kind{
	store.KindMove, store.KindRecover, store.KindRollback, store.KindRevert, store.KindAbort, store.KindShed, store.KindDrift,
	store.KindHold, store.KindPause, store.KindResume, store.KindPropose,
}

// Wanted are the kinds of decisions the target is told of.
func (n NotificationConfig) Wanted() []store.Kind {
	if len(n.Kinds) == 0 {
		return usuallyTold
	}
	return n.Kinds
}

func validateNotifications(c Config) error {
	var errs []error
	names := map[string]bool{}
	for i, n := range c.Notifications {
		if err := n.validate(c); err != nil {
			errs = append(errs, fmt.Errorf("notifications[%d].%w", i, err))
		}
		if names[n.Name] {
			errs = append(errs, fmt.Errorf("notifications[%d].name: %q is there twice", i, n.Name))
		}
		names[n.Name] = true
	}
	return errors.Join(errs...)
}

func (n NotificationConfig) validate(c Config) error {
	switch {
	case n.Name == "":
		return errors.New("name: is empty; give the target a name, such as on-call")
	case n.Format != NotifyJSON && n.Format != NotifySlack:
		return fmt.Errorf("format: %q is not allowed; use %s or %s", n.Format, NotifyJSON, NotifySlack)
	case (n.URL == "") == (n.URLFile == ""):
		return errors.New("url: give either url or urlFile")
	}
	if n.URL != "" {
		if err := checkURL("url", n.URL, ""); err != nil {
			return err
		}
	}
	for _, k := range n.Kinds {
		if !slices.Contains(store.Kinds(), k) {
			return fmt.Errorf("kinds: %q is not allowed; use some of %v", k, store.Kinds())
		}
	}
	for _, name := range n.Pools {
		if c.Kubernetes.Discover.Enabled() {
			break // it may be found later
		}
		if !slices.ContainsFunc(c.Pools, func(p PoolConfig) bool { return p.Name == name }) {
			return fmt.Errorf("pools: there is no pool %q", name)
		}
	}
	return nil
}
