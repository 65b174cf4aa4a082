package serve

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"strings"
)

// Build identifies what a program was built from.
type Build struct {
	// Version is the module's version, such as v1.4.0; (devel) if it was built from a folder.
	Version string `json:"version" show:"Version"`
	// Commit is the commit's first 12 characters, with a + if files differed from it; unknown if the program was
	// built without the repository.
	Commit string `json:"commit" show:"Commit"`
	Go     string `json:"go" show:"Go,detail"`
}

// Release joins the version and the hash of a catalog, such as v1.4.0:1a2b3c4d, for a message attribute.
// Besides the colon it has only letters, digits, . and -.
func (b Build) Release(catalog string) string {
	version := strings.NewReplacer("+", ".", "(", "", ")", "").Replace(b.Version) // no others occur
	return version[:min(len(version), maxVersion)] + ":" + catalog
}

const maxVersion = 50

// BuildOf returns the Build of the running program.
func BuildOf() Build {
	info, _ := debug.ReadBuildInfo() // nil if it was built without modules
	return buildOf(cmp.Or(info, &debug.BuildInfo{}))
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
