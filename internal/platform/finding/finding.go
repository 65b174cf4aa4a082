// Package finding owns the types of the doctor's report: differences between an installation and the catalog,
// and resources that could not be read. It does not know how the doctor finds them.
package finding

// Code is one kind of difference between a live resource and the catalog: a Finding without a resource.
type Code Finding

// New returns a code. effect is the difference's effect on messages or people; remedy is what to do about it.
func New(name, effect, remedy string) Code { return Code{Code: name, Effect: effect, Do: remedy} }

// Finding is one difference between the catalog and a live resource.
type Finding struct {
	// Queue is the id of the queue or of a shared topic; empty: the finding concerns no single queue.
	Queue string `json:"queue" show:"Queue" link:"catalog/queues"`
	Kind  string `json:"kind" show:"What"` // topic, subscription, service, job or secret
	ID    string `json:"id" show:"Id"`
	Code  string `json:"code" show:"Finding"`
	// Have and Want are the actual and the desired setting, in words.
	Have   string `json:"have,omitempty" show:"Is,less"`
	Want   string `json:"want,omitempty" show:"Should be,less"`
	Effect string `json:"effect" show:"Effect"` // the difference's effect
	Do     string `json:"do"`                   // what to do about it
}

// Of returns the code's finding about a resource, with its actual and its desired setting.
func (c Code) Of(kind, id, have, want string) Finding {
	c.Kind, c.ID, c.Have, c.Want = kind, id, have, want
	return Finding(c)
}

// Unread is a resource that could not be read, so its differences are unknown.
type Unread struct {
	// What names the resource, such as: topic orders.
	What string `json:"what" show:"Not looked at"`
	// Permission is the permission that an account needs to read it, if known.
	Permission string `json:"permission,omitempty" show:"Takes the permission"`
	// Why is the answer's code, or the reason in words.
	Why string `json:"why" show:"Why"`
}
