// Runs the health checks of kustomize/argocd as Argo CD runs them, on the objects of a file of cases. Prints what each object is for
// Argo CD and for kstatus, and fails where the two contradict each other.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
	"sigs.k8s.io/yaml"
)

const (
	patchFile = "../../kustomize/argocd/argocd-cm.yaml"
	keyPrefix = "resource.customizations.health.operator.lynq.sh_"
)

// The only statuses that Argo CD takes from a check are these, Missing and Unknown. Missing is for an object that is not there, and Unknown
// for a check that failed.
const (
	healthy     = "Healthy"
	progressing = "Progressing"
	degraded    = "Degraded"
	suspended   = "Suspended"
)

// kstatus has no word for a form that is paused, or that broke after its rollout.
var allowed = map[status.Status][]string{
	status.CurrentStatus:     {healthy},
	status.FailedStatus:      {degraded},
	status.InProgressStatus:  {progressing, suspended, degraded},
	status.TerminatingStatus: {progressing},
}

type testCase struct {
	Name   string         `json:"name"`
	Object map[string]any `json:"object"`
}

type health struct {
	status, message string
}

func main() {
	if len(os.Args) != 2 {
		fail(errors.New("usage: go run . CASES.json"))
	}
	checks, err := readChecks()
	if err != nil {
		fail(err)
	}
	cases, err := readCases(os.Args[1])
	if err != nil {
		fail(err)
	}
	// Without a line if one case fails: then no golden file is equal to the output.
	var lines strings.Builder
	tried := map[string]bool{}
	for _, c := range cases {
		kind, _ := c.Object["kind"].(string)
		line, err := try(checks[kind], c.Object)
		if err != nil {
			fail(fmt.Errorf("%s, %s: %w", kind, c.Name, err))
		}
		tried[kind] = true
		fmt.Fprintf(&lines, "%s, %s: %s\n", kind, c.Name, line)
	}
	for kind := range checks {
		if !tried[kind] {
			fail(fmt.Errorf("%s: the check of %s has no case", patchFile, kind))
		}
	}
	fmt.Print(lines.String())
}

// By the kind that each is for.
func readChecks() (map[string]string, error) {
	text, err := os.ReadFile(patchFile)
	if err != nil {
		return nil, err
	}
	var patch struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Data map[string]string `json:"data"`
	}
	// Strict: of two keys that are the same, only the last one would be tried.
	if err := yaml.UnmarshalStrict(text, &patch); err != nil {
		return nil, fmt.Errorf("%s: %w", patchFile, err)
	}
	checks := map[string]string{}
	for key, script := range patch.Data {
		kind, is := strings.CutPrefix(key, keyPrefix)
		if !is {
			return nil, fmt.Errorf("%s: %s is no key of a health check", patchFile, key)
		}
		checks[kind] = script
	}
	return checks, nil
}

func readCases(path string) ([]testCase, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var cases []testCase
	return cases, json.Unmarshal(text, &cases)
}

func try(check string, object map[string]any) (string, error) {
	if check == "" {
		return "", fmt.Errorf("%s has no check of this kind", patchFile)
	}
	object["apiVersion"] = "operator.lynq.sh/v1"
	found, err := run(check, object)
	if err != nil {
		return "", err
	}
	of, err := status.Compute(&unstructured.Unstructured{Object: object})
	if err != nil {
		return "", err
	}
	if !slices.Contains(allowed[of.Status], found.status) {
		return "", fmt.Errorf("%s for Argo CD, and %s for kstatus: %s", found.status, of.Status, of.Message)
	}
	return fmt.Sprintf("%s (kstatus %s): %s", found.status, of.Status, found.message), nil
}

// Argo CD opens the same libraries, without useOpenLibs, and os without its dangerous functions, which the checks do not use. It ends
// a script after a second.
func run(check string, object map[string]any) (health, error) {
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	libraries := []struct {
		name string
		open lua.LGFunction
	}{
		{lua.LoadLibName, lua.OpenPackage},
		{lua.BaseLibName, lua.OpenBase},
		{lua.TabLibName, lua.OpenTable},
	}
	for _, library := range libraries {
		open := lua.P{Fn: state.NewFunction(library.open), NRet: 0, Protect: true}
		if err := state.CallByParam(open, lua.LString(library.name)); err != nil {
			return health{}, err
		}
	}
	within, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	state.SetContext(within)
	state.SetGlobal("obj", value(state, object))
	if err := state.DoString(check); err != nil {
		return health{}, err
	}
	table, is := state.Get(-1).(*lua.LTable)
	if !is {
		return health{}, fmt.Errorf("the check returned a %s, and not a table", state.Get(-1).Type())
	}
	var found health
	var err error
	table.ForEach(func(key, value lua.LValue) {
		text, isText := value.(lua.LString)
		switch {
		case !isText:
			err = fmt.Errorf("%s is a %s, and not a string", key, value.Type())
		case key.String() == "status":
			found.status = string(text)
		case key.String() == "message":
			found.message = string(text)
		default:
			err = fmt.Errorf("Argo CD does not know the field %s", key)
		}
	})
	return found, err
}

func value(state *lua.LState, of any) lua.LValue {
	switch of := of.(type) {
	case string:
		return lua.LString(of)
	case bool:
		return lua.LBool(of)
	case int64:
		return lua.LNumber(of)
	case float64:
		return lua.LNumber(of)
	case []any:
		table := state.CreateTable(len(of), 0)
		for _, item := range of {
			table.Append(value(state, item))
		}
		return table
	case map[string]any:
		table := state.CreateTable(0, len(of))
		for key, item := range of {
			table.RawSetString(key, value(state, item))
		}
		return table
	}
	return lua.LNil
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
