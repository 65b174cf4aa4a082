package audit

import "errors"

// Proof is how it is known who somebody is.
type Proof string

// The proofs.
const (
	// Identity: a verified identity has the name, such as one of Google.
	Identity Proof = "identity"
	// SharedToken: they hold a token that others may hold too. It says nothing about who they are.
	SharedToken Proof = "token"
	// ThisMachine: they are on this machine, which lets people in beside emulators and stand-ins alone.
	ThisMachine Proof = "local"
)

// Author is who asks for something. The zero Author is nobody.
type Author struct {
	Proof Proof
	// Name is the e-mail address of an identity, or what somebody without one says they are called; it may be empty then.
	Name string
}

// String is the author's name in the audit: ada@example.org, token:ada, local:ada, or token where they say no name.
func (a Author) String() string {
	switch {
	case a.Proof == Identity:
		return a.Name
	case a.Name == "":
		return string(a.Proof)
	default:
		return string(a.Proof) + ":" + a.Name
	}
}

// The refusals of TwoPeople.
var (
	// ErrNoIdentity: the person has no identity of their own, so that nobody can say that two people were two.
	ErrNoIdentity = errors.New("audit: it takes two people, and each needs an identity of their own")
	// ErrSamePerson: the second person is the first.
	ErrSamePerson = errors.New("audit: it takes two people: somebody else has to approve it")
)

// TwoPeople checks the part of one person in what takes two. first is who has begun it, as String has it; empty: this
// person begins it. Each needs an identity; beside emulators and stand-ins, where nothing is at stake, a name is one.
// The error is ErrNoIdentity or ErrSamePerson.
func TwoPeople(first string, by Author) error {
	switch {
	case by.Name == "", by.Proof != Identity && by.Proof != ThisMachine:
		return ErrNoIdentity
	case by.String() == first:
		return ErrSamePerson
	default:
		return nil
	}
}
