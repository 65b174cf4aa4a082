// Package finding owns the form of what the doctor reports: differences between an installation and the
// catalog, and resources that it could not read. It refuses to know where either comes from.
package finding

// Code is a kind of difference between a live resource and the catalog: a Finding without a resource.
type Code Finding

// New returns a code. effect is what the difference does to messages or people; remedy is what to do.
func New(name, effect, remedy string) Code { return Code{Code: name, Effect: effect, Do: remedy} }

// Finding is one difference between the catalog and a live resource.
type Finding struct {
	// Queue is the id of the queue, or of a topic that is no queue's own; empty: it is about no single queue.
	Queue string `json:"queue" show:"Queue" link:"catalog/queues"`
	Kind  string `json:"kind" show:"What"` // topic, subscription, service, job or secret
	ID    string `json:"id" show:"Id"`
	Code  string `json:"code" show:"Finding"`
	// Have and Want are settings, in words.
	Have   string `json:"have,omitempty" show:"Is,less"`
	Want   string `json:"want,omitempty" show:"Should be,less"`
	Effect string `json:"effect" show:"Effect"` // what the difference does
	Do     string `json:"do"`                   // what to do about it
}

// Of returns the code's finding about a resource: what it has, and what it should have.
func (c Code) Of(kind, id, have, want string) Finding {
	c.Kind, c.ID, c.Have, c.Want = kind, id, have, want
	return Finding(c)
}

// Unread is a resource that could not be read, so that its differences are not known.
type Unread struct {
	// What it is, in words, such as: topic orders.
	What string `json:"what" show:"Not looked at"`
	// Permission is what an account needs to read it, if that is known.
	Permission string `json:"permission,omitempty" show:"Takes the permission"`
	// Why is the code of the answer, or the reason in words.
	Why string `json:"why" show:"Why"`
}
