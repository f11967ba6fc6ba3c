// Package oracle writes what Go's text/template gives for cases of templates, as JSON.
package oracle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"
)

// Family is a group of cases; each is named by the family and its number.
type Family struct {
	Name      string
	Templates []string
}

// Case is a template and what it gives.
type Case struct {
	Name     string `json:"name"`
	Template string `json:"template"`
	// What Leaf makes of the output.
	Leaf  any    `json:"leaf,omitempty"`
	Error string `json:"error,omitempty"`
}

// Oracle is what the cases are rendered with.
type Oracle struct {
	Functions template.FuncMap
	// Every case sees the same variables.
	Variables map[string]string
	Families  []Family
	// Leaf turns an output into what JSON shows of it.
	Leaf func(output string) any
}

// Write writes the names of all functions, the variables and the results of all cases.
func (o *Oracle) Write(out io.Writer) error {
	var cases []Case
	for _, family := range o.Families {
		for number, text := range family.Templates {
			name := fmt.Sprintf("%s-%03d", family.Name, number+1)
			cases = append(cases, o.Run(name, text))
		}
	}
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	return encoder.Encode(map[string]any{"names": o.names(), "variables": o.Variables, "cases": cases})
}

// Functions that text/template has without a table.
var builtins = strings.Fields("and call eq ge gt html index js le len lt ne not or print printf println slice urlquery")

// All names that a template could call, sorted.
func (o *Oracle) names() []string {
	names := slices.Clone(builtins)
	for name := range o.Functions {
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// WithoutCase gives the names that no case calls, those excused aside.
func (o *Oracle) WithoutCase(excused []string) []string {
	used := map[string]bool{}
	for _, family := range o.Families {
		for _, text := range family.Templates {
			parsed, err := template.New("t").Funcs(o.Functions).Parse(text)
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
	return slices.DeleteFunc(o.names(), func(name string) bool {
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

// Run renders one case.
func (o *Oracle) Run(name, text string) Case {
	result := Case{Name: name, Template: text}
	parsed, err := template.New("t").Option("missingkey=error").Funcs(o.Functions).Parse(text)
	if err != nil {
		result.Error = err.Error()
		return result
	}
	vars := map[string]any{}
	for key, value := range o.Variables {
		vars[key] = value
	}
	var out bytes.Buffer
	if err := parsed.Execute(&out, vars); err != nil {
		result.Error = strings.ToValidUTF8(err.Error(), "\ufffd")
		return result
	}
	result.Leaf = o.Leaf(out.String())
	return result
}
