package pubsub

import (
	"errors"
	"regexp"
	"strings"
)

// Names are what topics and subscriptions are called in a project. The rest of the program knows the
// catalog's ids alone: this package puts the installation before them, and takes it off again.
type Names struct {
	ProjectID string
	// Installation tells apart the installations of one project: topic orders of installation shop is
	// shop-orders. Empty: the ids are the catalog's.
	Installation string
}

// installationName is what Terraform takes as the name of an installation, which is a prefix of accounts too.
var installationName = regexp.MustCompile(`^[a-z][a-z0-9-]{1,10}[a-z0-9]$`)

// Check refuses an installation whose name cannot stand before an id.
func (n Names) Check() error {
	switch {
	case n.Installation == "":
		return nil
	case !installationName.MatchString(n.Installation):
		return errors.New("INSTALLATION: must be 3 to 12 of a-z, 0-9 and -, begin with a letter and not end with -")
	case strings.HasPrefix(n.Installation, "goog"):
		return errors.New("INSTALLATION: must not begin with goog, which Pub/Sub keeps for itself")
	default:
		return nil
	}
}

// id is what a topic or subscription of the catalog is called at Pub/Sub.
func (n Names) id(ofCatalog string) string { return n.prefix() + ofCatalog }

// prefix is before every id of the installation.
func (n Names) prefix() string {
	if n.Installation == "" {
		return ""
	}
	return n.Installation + "-"
}

// ofCatalog takes the installation off an id. It reports false for the ids of others.
func (n Names) ofCatalog(id string) (string, bool) { return strings.CutPrefix(id, n.prefix()) }

func (n Names) topicName(id string) string { return "projects/" + n.ProjectID + "/topics/" + n.id(id) }

func (n Names) subscriptionName(id string) string {
	return "projects/" + n.ProjectID + "/subscriptions/" + n.id(id)
}
