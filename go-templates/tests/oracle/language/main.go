// Command language writes what Go's text/template makes of the cases in a JSON file: the expected results of the
// engine's tests. It knows a few functions only; the function table has an oracle of its own.
//
//	go run . ../../language.json > ../../language.golden.json
package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"text/template"
	"unicode/utf8"
)

type testFile struct {
	// Vars are those of every case.
	Vars  map[string]any `json:"vars"`
	Cases []testCase     `json:"cases"`
}

type testCase struct {
	Name     string `json:"name"`
	Template string `json:"template"`
	// Ours is the error that the engine gives on purpose where Go does something else.
	Ours string `json:"ours"`
}

// result has exactly one of its last four fields.
type result struct {
	Name       string  `json:"name"`
	Output     *string `json:"output,omitempty"`
	OutputHex  *string `json:"output_hex,omitempty"`
	ParseError *string `json:"parse_error,omitempty"`
	ExecError  *string `json:"exec_error,omitempty"`
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: language CASES.json > GOLDEN.json")
	}
	file, err := os.Open(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	decoder := json.NewDecoder(file)
	decoder.UseNumber()
	decoder.DisallowUnknownFields()
	var tests testFile
	if err := decoder.Decode(&tests); err != nil {
		log.Fatal(err)
	}
	seen := map[string]bool{}
	fmt.Print("[")
	for i, c := range tests.Cases {
		if seen[c.Name] {
			log.Fatalf("two cases are named %q", c.Name)
		}
		seen[c.Name] = true
		if i > 0 {
			fmt.Print(",")
		}
		fmt.Printf("\n%s", encode(run(c, tests.Vars)))
	}
	fmt.Print("\n]\n")
}

func encode(r result) string {
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(r); err != nil {
		log.Fatal(err)
	}
	return strings.TrimSpace(out.String())
}

func run(c testCase, given map[string]any) result {
	r := result{Name: c.Name}
	parsed, err := template.New("t").Option("missingkey=error").Funcs(functions).Parse(c.Template)
	if err != nil {
		text := err.Error()
		r.ParseError = &text
		return r
	}
	vars := map[string]any{}
	for key, value := range given {
		vars[key] = native(value)
	}
	var out bytes.Buffer
	if err := parsed.Execute(&out, vars); err != nil {
		text := err.Error()
		r.ExecError = &text
		return r
	}
	text := out.String()
	if utf8.ValidString(text) {
		r.Output = &text
	} else {
		text = hex.EncodeToString(out.Bytes())
		r.OutputHex = &text
	}
	return r
}

// native gives JSON's values Go's types. An object with one key that begins with a dollar sign names a type that
// JSON does not have: {"$int64": 1}, {"$uint64": 1}, {"$strings": ["a"]}, {"$strmap": {"a": "b"}}.
func native(value any) any {
	switch value := value.(type) {
	case json.Number:
		if n, err := value.Int64(); err == nil {
			return int(n)
		}
		f, err := value.Float64()
		if err != nil {
			log.Fatal(err)
		}
		return f
	case []any:
		list := make([]any, len(value))
		for i, item := range value {
			list[i] = native(item)
		}
		return list
	case map[string]any:
		if typed, ok := special(value); ok {
			return typed
		}
		dict := map[string]any{}
		for key, item := range value {
			dict[key] = native(item)
		}
		return dict
	default:
		return value
	}
}

func special(object map[string]any) (any, bool) {
	if len(object) != 1 {
		return nil, false
	}
	for kind, value := range object {
		switch kind {
		case "$int64":
			return int64(native(value).(int)), true
		case "$uint64":
			return uint64(native(value).(int)), true
		case "$strings":
			list := []string{}
			for _, item := range value.([]any) {
				list = append(list, item.(string))
			}
			return list, true
		case "$strmap":
			dict := map[string]string{}
			for key, item := range value.(map[string]any) {
				dict[key] = item.(string)
			}
			return dict, true
		}
	}
	return nil, false
}

// functions have the names and types of sprig's, for arguments of every kind; only what the cases need of them.
var functions = template.FuncMap{
	"upper":     strings.ToUpper,
	"fail":      func(message string) (string, error) { return "", errors.New(message) },
	"list":      func(items ...any) []any { return items },
	"first":     func(list any) any { return list.([]any)[0] },
	"join":      func(separator string, list any) string { return strings.Join(list.([]string), separator) },
	"splitList": func(separator, text string) []string { return strings.Split(text, separator) },
	"hasKey":    func(dict map[string]any, key string) bool { _, ok := dict[key]; return ok },
	"repeat":    func(count int, text string) string { return strings.Repeat(text, count) },
	"append":    func(list any, item any) []any { return append(append([]any{}, list.([]any)...), item) },
	"set": func(dict map[string]any, key string, value any) map[string]any {
		dict[key] = value
		return dict
	},
	"default": func(fallback any, given ...any) any {
		if len(given) == 0 || given[0] == nil || given[0] == "" {
			return fallback
		}
		return given[0]
	},
	"trunc": func(length int, text string) string {
		if length >= 0 && len(text) > length {
			return text[:length]
		}
		return text
	},
	"dict": func(pairs ...any) map[string]any {
		dict := map[string]any{}
		for i := 0; i+1 < len(pairs); i += 2 {
			dict[pairs[i].(string)] = pairs[i+1]
		}
		return dict
	},
}
