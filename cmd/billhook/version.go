package main

import (
	"github.com/spf13/cobra"

	"billhook/internal/platform/serve"
)

func (p *program) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print which build this is", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			build := serve.BuildOf()
			p.printf("billhook %s, commit %s, %s\n", build.Version, build.Commit, build.Go)
			return p.printJSON(build)
		},
	}
}
