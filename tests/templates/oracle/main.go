// Writes what Go's text/template gives for the cases of Lynq's own functions, as JSON on standard output.
// The Rust tests compare the engine with it: go run . > ../functions.golden.json
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/Masterminds/sprig/v3"

	"templates-oracle/oracle"
)

// Every case sees the same row.
var row = map[string]string{
	"uid":     "acme-web",
	"plan":    "enterprise",
	"empty":   "",
	"n":       "5",
	"half":    "2.5",
	"big":     "10000000",
	"yes":     "Yes",
	"url":     "https://user:pw@shop.example.com:8443/path?q=1#top",
	"text":    "The quick brown fox",
	"unicode": "Straße ǆ İstanbul 日本語",
	"list":    "c,a,b,a",
	"lines":   "one\ntwo\n\nthree",
	"config":  `{"db":{"host":"db.local","port":5432},"tags":["x","y"],"on":true,"none":null,"ratio":0.25}`,
	"html":    `<a href="x">it's & "q"</a>`,
}

func main() {
	time.Local = time.UTC
	functions := sprig.TxtFuncMap()
	for name, function := range lynqFunctions {
		functions[name] = function
	}
	all := oracle.Oracle{
		Functions: functions,
		Variables: row,
		Families:  families,
		Leaf:      leaf,
	}
	if err := all.Write(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
