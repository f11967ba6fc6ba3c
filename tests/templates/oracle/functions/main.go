// Writes what Go's text/template and sprig give for every case, as JSON on standard output.
// The Rust tests compare the engine with it: go run . > ../../functions.golden.json
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"
	"time"

	"github.com/Masterminds/sprig/v3"
)

// A template of one family, named by the family and its number.
type Case struct {
	Name     string `json:"name"`
	Template string `json:"template"`
	// The leaf of a resource that the output becomes: text, or a number or boolean.
	Leaf  any    `json:"leaf,omitempty"`
	Error string `json:"error,omitempty"`
}

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

var families = []struct {
	name      string
	templates []string
}{
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
	{"lynq", lynqCases},
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

func main() {
	time.Local = time.UTC
	functions := sprig.TxtFuncMap()
	for name, function := range lynqFunctions {
		functions[name] = function
	}
	names := namesOf(functions)
	if missing := withoutCase(names, functions); len(missing) > 0 {
		fmt.Fprintf(os.Stderr, "no case uses %s: add one to a cases_*.go\n", strings.Join(missing, ", "))
		os.Exit(1)
	}
	var cases []Case
	for _, family := range families {
		for number, text := range family.templates {
			name := fmt.Sprintf("%s-%03d", family.name, number+1)
			cases = append(cases, run(name, text, functions))
		}
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(map[string]any{"names": names, "row": row, "cases": cases}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Functions that text/template has without a table.
var builtins = strings.Fields("and call eq ge gt html index js le len lt ne not or print printf println slice urlquery")

// Names that no case here can use: the environment and the network, other results at every call, and what lynqgate
// refuses. The Rust tests know of each which it is.
var excused = strings.Fields(`
	env expandenv getHostByName
	randAlpha randAlphaNum randAscii randBytes randInt randNumeric shuffle uuidv4
	bcrypt genCA genCAWithKey genPrivateKey genSelfSignedCert
	genSelfSignedCertWithKey genSignedCert genSignedCertWithKey htpasswd`)

// All names that a template could call, sorted.
func namesOf(functions template.FuncMap) []string {
	names := slices.Clone(builtins)
	for name := range functions {
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// The names that no case calls, those excused aside.
func withoutCase(names []string, functions template.FuncMap) []string {
	used := map[string]bool{}
	for _, family := range families {
		for _, text := range family.templates {
			parsed, err := template.New("t").Funcs(functions).Parse(text)
			if err != nil {
				continue
			}
			for _, defined := range parsed.Templates() {
				if defined.Tree != nil {
					called(reflect.ValueOf(defined.Root), used)
				}
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return used[name] || slices.Contains(excused, name)
	})
}

// Notes every function that the tree under a node calls.
func called(value reflect.Value, used map[string]bool) {
	switch value.Kind() {
	case reflect.Interface:
		called(value.Elem(), used)
	case reflect.Pointer:
		if value.IsNil() {
			return
		}
		if identifier, is := value.Interface().(*parse.IdentifierNode); is {
			used[identifier.Ident] = true
		}
		called(value.Elem(), used)
	case reflect.Slice:
		for i := range value.Len() {
			called(value.Index(i), used)
		}
	case reflect.Struct:
		for i := range value.NumField() {
			// What a node refers to besides its children (its tree, the number it parsed) is not exported, or no node.
			if value.Type().Field(i).IsExported() {
				called(value.Field(i), used)
			}
		}
	}
}

func run(name, text string, functions template.FuncMap) Case {
	result := Case{Name: name, Template: text}
	parsed, err := template.New("t").Option("missingkey=error").Funcs(functions).Parse(text)
	if err != nil {
		result.Error = err.Error()
		return result
	}
	vars := map[string]any{}
	for key, value := range row {
		vars[key] = value
	}
	var out bytes.Buffer
	if err := parsed.Execute(&out, vars); err != nil {
		result.Error = strings.ToValidUTF8(err.Error(), "\ufffd")
		return result
	}
	result.Leaf = leaf(out.String())
	return result
}
