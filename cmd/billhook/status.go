package main

import (
	"cmp"
	"strings"

	"github.com/spf13/cobra"

	"billhook/internal/console/ops"
)

func (p *program) statusCommand() *cobra.Command {
	return shows(p, nil, question{
		use: "status", short: "Show what runs: versions, the catalog of each service against what is deployed, settings, and what the worker's doctor finds",
		long: "The worker compares what it may look at, and keeps what it has found for a minute. Whose credentials may look at more runs\n" +
			"`billhook doctor`. Of a secret it is shown that it is set, and no more.",
		path: "/v1/ops/status",
	}, p.printStatus)
}

func (p *program) printStatus(s ops.Status) {
	p.record([]string{"worker", "version", "commit", "pool", "started", "catalog", "deployed"}, row(
		s.Instance, s.Build.Version, s.Build.Commit, cmp.Or(s.Pool, "all"), when(s.StartedAt), s.Catalog, p.agreed(cmp.Or(strings.Join(s.Deployed, ", "), "not known"), s.Agreement),
	))
	var rows [][]string
	for _, one := range s.Services {
		rows = append(rows, row(one.Service.Service, one.Instance, poolOf(one), one.Version, p.agreed(one.Catalog, one.Agreement), age(one.SeenSeconds)+" ago", when(one.StartedAt)))
	}
	p.printf("\n")
	if len(rows) == 0 {
		p.printf("No service was seen in this hour or the one before.\n")
	} else {
		p.table([]string{"SERVICE", "INSTANCE", "POOL", "VERSION", "CATALOG", "SEEN", "STARTED"}, rows, "STARTED", "POOL")
	}
	rows = nil
	for _, one := range s.Configuration {
		rows = append(rows, row(one.Name, one.Value, one.About))
	}
	p.printf("\n")
	if len(rows) > 0 {
		p.table([]string{"VARIABLE", "VALUE", "ABOUT"}, rows, "ABOUT")
		p.printf("\n")
	}
	d := s.Doctor
	if d.Problem != "" {
		p.printf("Nothing was examined: %s.\n", strings.TrimSuffix(d.Problem, "."))
		return
	}
	rows = nil
	for _, f := range d.Findings {
		rows = append(rows, row(f.Queue, f.Kind+" "+f.ID, f.Code, f.Have, f.Want, f.Effect))
	}
	if len(rows) > 0 {
		p.table([]string{"QUEUE", "WHAT", "FINDING", "IS", "SHOULD BE", "EFFECT"}, rows, "IS", "SHOULD BE")
	}
	p.printf("Examined %s: %d findings.\n", when(d.ExaminedAt), len(d.Findings))
	if d.Unread > 0 {
		p.printf("This worker may not look at %d topics, subscriptions and grants; billhook doctor looks with your credentials.\n", d.Unread)
	}
}

func poolOf(one ops.ServiceStatus) string {
	if one.Instance == "" {
		return ""
	}
	return cmp.Or(one.Pool, "all")
}

func (p *program) agreed(hash string, is ops.Agreement) string {
	if is == ops.Differs {
		return p.alert(hash + " DIFFERS")
	}
	return hash
}
