// Writes what Go's text/template and sprig give for every case, as JSON on standard output.
// The Rust tests compare the engine with it: go run . > ../../functions.golden.json
package main

import (
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"text/template"
	"time"

	"github.com/Masterminds/sprig/v3"

	"templates-oracle/oracle"
)

// Every case sees the same variables.
var variables = map[string]string{
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

var families = []oracle.Family{
	{"builtin", builtinCases},
	{"printf", printfCases},
	{"compare", compareCases},
	{"defaults", defaultsCases},
	{"integers", integersCases},
	{"strings", stringsCases},
	{"case", caseCases},
	{"quoting", quotingCases},
	{"splitting", splittingCases},
	{"wrapping", wrappingCases},
	{"lists", listsCases},
	{"dicts", dictsCases},
	{"merge", mergeCases},
	{"json", jsonCases},
	{"encoding", encodingCases},
	{"hashes", hashesCases},
	{"crypto", cryptoCases},
	{"reflection", reflectionCases},
	{"paths", pathsCases},
	{"time", timeCases},
	{"types", typesCases},
	{"count", countCases},
	{"regex", regexCases},
	{"zones", zonesCases},
	{"semver", semverCases},
	{"url", urlCases},
	{"floats", floatsCases},
	{"methods", methodsCases},
	{"certificates", certificatesCases},
}

// Functions that the crate has otherwise than this version of sprig.
var replaced = template.FuncMap{
	// Of the next version of sprig.
	"sha512sum": func(s string) string {
		sum := sha512.Sum512([]byte(s))
		return hex.EncodeToString(sum[:])
	},
	// The time is a fact that is passed in.
	"now": func() time.Time {
		return time.Date(2026, 1, 2, 3, 4, 5, 600_000_000, time.UTC)
	},
}

// Names that no case here can use: the environment and the network, and other results at every call. The Rust tests
// know of each which it is.
var excused = strings.Fields(`
	env expandenv getHostByName
	randAlpha randAlphaNum randAscii randBytes randInt randNumeric shuffle uuidv4
	bcrypt genCA genCAWithKey genPrivateKey genSelfSignedCert
	genSelfSignedCertWithKey genSignedCert genSignedCertWithKey htpasswd`)

func main() {
	time.Local = time.UTC
	functions := sprig.TxtFuncMap()
	for name, function := range replaced {
		functions[name] = function
	}
	all := oracle.Oracle{
		Functions: functions,
		Variables: variables,
		Families:  families,
		Leaf:      func(output string) any { return output },
	}
	if missing := all.WithoutCase(excused); len(missing) > 0 {
		fmt.Fprintf(os.Stderr, "no case uses %s: add one to a cases_*.go\n", strings.Join(missing, ", "))
		os.Exit(1)
	}
	if err := all.Write(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
