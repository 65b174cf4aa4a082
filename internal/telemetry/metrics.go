package telemetry

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics counts webhooks and deliveries. Labels are codes from closed sets, so
// that no sender can make up a new series.
type Metrics struct {
	registry   *prometheus.Registry
	webhooks   *prometheus.CounterVec
	ingest     *prometheus.HistogramVec
	large      *prometheus.CounterVec
	deliveries *prometheus.CounterVec
	handling   *prometheus.HistogramVec
}

// NewMetrics returns metrics in a registry of their own.
func NewMetrics() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		webhooks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "billhook_webhooks_total", Help: "Webhooks by source, answer and reason.",
		}, []string{"source", "status", "reason"}),
		ingest: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "billhook_webhook_duration_seconds", Help: "From the first byte of a webhook to its answer.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 15),
		}, []string{"source"}),
		large: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "billhook_large_messages_total", Help: "Published messages above the recommended 256 KiB.",
		}, []string{"queue"}),
		deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "billhook_deliveries_total", Help: "Deliveries by queue, outcome and reason.",
		}, []string{"queue", "outcome", "reason"}),
		handling: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "billhook_delivery_duration_seconds", Help: "From the first byte of a delivery to its answer.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 17),
		}, []string{"queue"}),
	}
	m.registry.MustRegister(m.webhooks, m.ingest, m.large, m.deliveries, m.handling,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Webhook counts one answered webhook. reason is a code, empty when accepted.
func (m *Metrics) Webhook(source string, status int, reason string, took time.Duration) {
	m.webhooks.WithLabelValues(source, statusLabel(status), reason).Inc()
	m.ingest.WithLabelValues(source).Observe(took.Seconds())
}

// labels of the statuses that are answered all the time.
var labels = map[int]string{http.StatusOK: "200", http.StatusAccepted: "202", http.StatusServiceUnavailable: "503"}

func statusLabel(status int) string {
	if label, ok := labels[status]; ok {
		return label
	}
	return strconv.Itoa(status)
}

// LargeMessage counts a message above the recommended size.
func (m *Metrics) LargeMessage(queue string) { m.large.WithLabelValues(queue).Inc() }

// Delivery counts one answered delivery. reason is a code; when processed, the handler's result.
func (m *Metrics) Delivery(queue, outcome, reason string, took time.Duration) {
	m.deliveries.WithLabelValues(queue, outcome, reason).Inc()
	m.handling.WithLabelValues(queue).Observe(took.Seconds())
}

// Handler serves the metrics in Prometheus' text format.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}
