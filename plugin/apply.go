package plugin

import (
	"errors"
	"fmt"

	"github.com/kvtuner/kvtuner/store"
)

// Errors of Policy.Apply, beside store.ErrInvalid.
var (
	// ErrPool means a document of another pool.
	ErrPool = errors.New("document of another pool")
	// ErrRevision means a document older than one already applied.
	ErrRevision = errors.New("document older than the one in force")
	// ErrStatic means a policy without thresholds, for which documents mean
	// nothing.
	ErrStatic = errors.New(`load policy is neither "threshold" nor "adaptive"`)
)

// Apply puts a document in force, clamped to the configured bounds. A document
// that is invalid, of another pool, or older than one already applied is
// refused, counted and logged, and what is in force stays. The document in force
// applied again changes nothing; one with its revision and another content was
// edited by hand, and is obeyed.
func (p *Policy) Apply(doc *store.Document) error {
	p.applying.Lock()
	defer p.applying.Unlock()
	why, err := p.check(doc)
	if err != nil {
		return p.refuse(why, fmt.Errorf("apply parameter document: %w", err))
	}
	if doc.Equal(p.inForce.Load().doc) {
		return nil
	}
	now := p.now()
	s := compile(doc, p.config.limits(), now, p.since(now))
	p.applied++
	s.draws = p.applied
	p.inForce.Store(s)
	p.log.Info("parameters in force", "revision", s.revision, "baseline", s.params[baseline].String(), "clamped", s.clamped != [arms]bool{})
	return nil
}

// check returns the label and the error of a document that is to be refused.
func (p *Policy) check(doc *store.Document) (string, error) {
	switch current := p.inForce.Load().revision; {
	case !p.config.Thresholds():
		return documentStatic, ErrStatic
	case doc == nil:
		return documentInvalid, refuse("document", "nil", "a parameter document")
	case doc.Validate() != nil:
		return documentInvalid, doc.Validate()
	case doc.Pool != p.pool:
		return documentPool, fmt.Errorf("%w: %q, want %q: point tuning at this pool's document", ErrPool, doc.Pool, p.pool)
	case doc.Revision < current:
		return documentRevision, fmt.Errorf("%w: revision %d, want %d or more: whoever restored an old document must write it with a newer revision", ErrRevision, doc.Revision, current)
	default:
		return "", nil
	}
}

// Stop returns to the static configuration, as an operator's kill switch wants it,
// until the next document is applied, of whatever revision; why is logged.
func (p *Policy) Stop(why error) {
	p.applying.Lock()
	defer p.applying.Unlock()
	if p.inForce.Load().doc == nil {
		return
	}
	s := staticSnapshot(p.config.Params())
	p.inForce.Store(s)
	p.log.Warn("the static configuration is in force", "baseline", s.params[baseline].String(), "why", why)
}

// Reject counts and logs that no document could be read: it did not parse, or
// the watch failed. What is in force stays.
func (p *Policy) Reject(err error) {
	why := documentWatch
	if errors.Is(err, store.ErrInvalid) {
		why = documentInvalid
	}
	_ = p.refuse(why, fmt.Errorf("read parameter document: %w", err))
}

func (p *Policy) refuse(why string, err error) error {
	p.metrics.refusedDocuments.WithLabelValues(why).Inc()
	p.log.Warn("parameter document refused; the one in force stays",
		"reason", why, "error", err, "revision", p.inForce.Load().revision)
	return err
}
