package delivery

// Public reports whether an address may be dialled for a target that is not internal.
func Public(address string) bool { return public("", address, nil) == nil }
