package installed

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/api/secretmanager/v1"
)

const (
	getVersion   = "secretmanager.versions.get"
	listSecrets  = "secretmanager.secrets.list"
	listVersions = "secretmanager.versions.list"
)

// ofSecrets are the questions about secrets: whether each version that a service reads can be read, and whether each
// secret of the installation that no service reads yet has one.
func (i *Installation) ofSecrets(looks []*look) (questions []func(context.Context, *look)) {
	var reads []version
	for _, at := range looks {
		for _, one := range at.reads {
			same := func(other version) bool { return other.secret == one.secret && other.number == one.number }
			if n := slices.IndexFunc(reads, same); n < 0 {
				reads = append(reads, one)
			} else if reads[n].service != one.service {
				reads[n].service += ", " + one.service
			}
		}
	}
	for _, one := range reads {
		questions = append(questions, func(ctx context.Context, at *look) { at.version(ctx, one) })
	}
	return append(questions, func(ctx context.Context, at *look) { at.unreadSecrets(ctx, reads) })
}

// version looks whether a version of a secret can be read.
func (l *look) version(ctx context.Context, of version) {
	id := idOf(of.secret)
	name := "projects/" + l.config.Project + "/secrets/" + id
	if strings.HasPrefix(of.secret, "projects/") { // a secret of another project
		name = of.secret
	}
	what := "version " + of.number + " of secret " + id
	have, err := l.secrets.Projects.Secrets.Versions.Get(name + "/versions/" + of.number).Context(ctx).Do()
	switch {
	case err != nil && l.missing(err, what, getVersion):
		l.find("secret", id, VersionUnusable, "there is no version "+of.number, "version "+of.number+" is "+enabled+", for "+of.service)
	case err == nil && have.State != enabled:
		l.find("secret", id, VersionUnusable, "version "+of.number+" is "+have.State, "version "+of.number+" is "+enabled+", for "+of.service)
	}
}

// unreadSecrets looks at the secrets that Terraform made and no service reads yet.
func (l *look) unreadSecrets(ctx context.Context, reads []version) {
	var ids []string
	err := l.secrets.Projects.Secrets.List("projects/"+l.config.Project).Filter("labels.app="+l.config.Name).Context(ctx).
		Pages(ctx, func(page *secretmanager.ListSecretsResponse) error {
			for _, secret := range page.Secrets {
				id := idOf(secret.Name)
				read := slices.ContainsFunc(reads, func(of version) bool { return idOf(of.secret) == id })
				if secret.Labels["app"] == l.config.Name && !read {
					ids = append(ids, id)
				}
			}
			return nil
		})
	if err != nil {
		_ = l.missing(err, "secrets that no service reads yet", listSecrets) // a list is never missing
		return
	}
	for _, id := range ids {
		page, err := l.secrets.Projects.Secrets.Versions.List("projects/" + l.config.Project + "/secrets/" + id).Filter("state:" + enabled).Context(ctx).Do()
		if err != nil {
			_ = l.missing(err, "the versions of secret "+id, listVersions) // one that is gone by now needs none
			continue
		}
		if !slices.ContainsFunc(page.Versions, func(v *secretmanager.SecretVersion) bool { return v.State == enabled }) {
			l.find("secret", id, SecretEmpty, "", "a version that is "+enabled)
		}
	}
}

// idOf is the last part of a name.
func idOf(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }
