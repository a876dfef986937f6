package llmd

import (
	"context"

	"github.com/llm-d/llm-d-router/pkg/epp/framework/interface/datalayer"
	fwkplugin "github.com/llm-d/llm-d-router/pkg/epp/framework/interface/plugin"
	"github.com/llm-d/llm-d-router/pkg/epp/framework/plugins/datalayer/source/metrics"
	"github.com/llm-d/llm-d-router/pkg/epp/framework/plugins/datalayer/source/notifications"

	"github.com/kvtuner/kvtuner/plugin"
	"github.com/kvtuner/kvtuner/plugin/adapter"
)

// RegisterDependencies asks for the events of endpoints and for the scrapes of
// their metrics, whether the configuration lists the plugin under their sources
// or not. Without a source of metrics, requests bring the default waiting signal
// along; nothing brings another one, and the EPP does not start.
func (p *Plugin) RegisterDependencies(r datalayer.Registrar) error {
	const events = notifications.EndpointNotificationSourceType
	err := r.Register(datalayer.PendingRegistration{
		Owner: p.name, SourceType: events, Extractor: p,
		DefaultSource: notifications.NewEndpointDataSource(events, events),
	})
	if err != nil {
		return err
	}
	missing := datalayer.Fail
	if p.adapter.Config().WaitingSignal == plugin.DefaultWaitingSignal {
		missing = datalayer.Warn
	}
	return r.Register(datalayer.PendingRegistration{
		Owner: p.name, SourceType: metrics.MetricsDataSourceType, Extractor: scrapes{p}, IfMissing: missing,
	})
}

// Extract frees what is kept of an endpoint that was removed.
func (p *Plugin) Extract(_ context.Context, event datalayer.EndpointEvent) error {
	if event.Endpoint == nil || event.Endpoint.GetMetadata() == nil {
		return nil
	}
	id := adapter.EndpointID(event.Endpoint.GetMetadata().ID)
	if event.Type == datalayer.EventDelete {
		p.adapter.Removed(id)
	} else {
		p.adapter.Added(id)
	}
	return nil
}

// scrapes takes the load of engines out of the scrapes of the EPP.
type scrapes struct{ p *Plugin }

var _ datalayer.PollingExtractor[metrics.PrometheusMetricMap] = scrapes{}

// TypedName is the plugin's.
func (s scrapes) TypedName() fwkplugin.TypedName { return s.p.name }

// Extract takes one scrape of one endpoint.
func (s scrapes) Extract(_ context.Context, in datalayer.PollInput[metrics.PrometheusMetricMap]) error {
	if in.Endpoint != nil && in.Endpoint.GetMetadata() != nil {
		s.p.adapter.Scraped(adapter.EndpointID(in.Endpoint.GetMetadata().ID), in.Payload)
	}
	return nil
}
