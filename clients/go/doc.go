// Package filter says which ids certainly do not exist, so that no request is needed for them.
//
//	client, err := filter.Start(ctx, filter.Config{
//		URL:          "https://ids.example/sets/resource",
//		Keys:         []string{"3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29"},
//		MaxStaleness: 10 * time.Second,
//	})
//	// …
//	if client.MayExist(id) {
//		// ask the service
//	}
//
// A [Client] follows what `edgeward filter serve` publishes, and no id that was committed more than
// MaxStaleness ago is ever skipped: it answers [Ask] until it has a filter, and whenever it cannot show
// that it is fresh. What is forged, broken, too large or older than what it has is refused and counted;
// the last good filter stays.
//
// [Filter] answers from the bytes of a file alone. [State] is the client without its transport.
package filter
