package serve

import (
	"cmp"
	"runtime"
	"runtime/debug"
)

// Build says what a program was built from.
type Build struct {
	// Version is that of the module, such as v1.4.0; (devel) where it was built from a folder.
	Version string `json:"version"`
	// Commit is 12 characters of the commit, with a + where files differed from it; unknown where the
	// program was built without the repository.
	Commit string `json:"commit"`
	Go     string `json:"go"`
}

// BuildOf returns what the running program was built from.
func BuildOf() Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return buildOf(info)
}

func buildOf(info *debug.BuildInfo) Build {
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	commit := settings["vcs.revision"]
	commit = commit[:min(12, len(commit))]
	if commit != "" && settings["vcs.modified"] == "true" {
		commit += "+"
	}
	return Build{Version: cmp.Or(info.Main.Version, "(devel)"), Commit: cmp.Or(commit, "unknown"), Go: runtime.Version()}
}
