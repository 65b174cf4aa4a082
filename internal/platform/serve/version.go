package serve

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"strings"
)

// Build says what a program was built from.
type Build struct {
	// Version is that of the module, such as v1.4.0; (devel) where it was built from a folder.
	Version string `json:"version" show:"Version"`
	// Commit is 12 characters of the commit, with a + where files differed from it; unknown where the
	// program was built without the repository.
	Commit string `json:"commit" show:"Commit"`
	Go     string `json:"go" show:"Go,detail"`
}

// Release names the build with the hash of a catalog, such as v1.4.0:1a2b3c4d, for an attribute of
// messages: it has letters, digits and . - alone besides the colon.
func (b Build) Release(catalog string) string {
	version := strings.NewReplacer("+", ".", "(", "", ")", "").Replace(b.Version) // a module's has nothing else
	return version[:min(len(version), maxVersion)] + ":" + catalog
}

const maxVersion = 50

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
	return Build{
		Version: cmp.Or(info.Main.Version, "(devel)"), Commit: cmp.Or(commit, "unknown"), Go: runtime.Version(),
	}
}
