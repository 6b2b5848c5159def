// Package filter answers whether an id certainly does not exist, so that a request for the id can be skipped.
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
// A [Client] follows a set of ids that `edgeward filter serve` publishes. It never answers [Absent] for an id that was
// committed more than MaxStaleness ago. It answers [Ask] until it has a filter, and whenever it cannot prove that the
// filter is fresh. Data that is forged, corrupt, too large or outdated is refused and counted; the last
// valid filter stays in use.
//
// [Filter] looks up ids in the bytes of a file without a client. [State] makes the decisions of a client
// and sends no HTTP requests.
package filter
