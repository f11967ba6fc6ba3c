// Says what kstatus makes of objects: a line of JSON on standard input for each, and on standard output
// its status and message.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var object map[string]any
		if err := json.Unmarshal(lines.Bytes(), &object); err != nil {
			fail(err)
		}
		// encoding/json reads numbers as floats, and an unstructured object has integers.
		found, err := status.Compute(&unstructured.Unstructured{Object: integers(object).(map[string]any)})
		if err != nil {
			fail(err)
		}
		fmt.Printf("%s: %s\n", found.Status, found.Message)
	}
	if err := lines.Err(); err != nil {
		fail(err)
	}
}

func integers(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			value[key] = integers(inner)
		}
	case []any:
		for i, inner := range value {
			value[i] = integers(inner)
		}
	case float64:
		if value == float64(int64(value)) {
			return int64(value)
		}
	}
	return value
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
