// An origin that routes by http.ServeMux, or with the argument "own" by the decoded path.
package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
)

func page(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }
}

func main() {
	var handler http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/admin/"):
			fmt.Fprint(w, "ADMIN")
		case strings.HasPrefix(r.URL.Path, "/account/"):
			fmt.Fprint(w, "PRIVATE")
		default:
			fmt.Fprint(w, "OTHER")
		}
	})
	if os.Args[1] == "mux" {
		mux := http.NewServeMux()
		mux.HandleFunc("/admin/", page("ADMIN"))
		mux.HandleFunc("/account/", page("PRIVATE"))
		mux.HandleFunc("/", page("OTHER"))
		handler = mux
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	panic(http.Serve(listener, handler))
}
