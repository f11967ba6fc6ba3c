// Says what kstatus makes of objects: a line of JSON on standard input for each, and on standard output
// its status and message.
package main

import (
	"bufio"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
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
		found, err := status.Compute(&unstructured.Unstructured{Object: object})
		if err != nil {
			fail(err)
		}
		fmt.Printf("%s: %s\n", found.Status, found.Message)
	}
	if err := lines.Err(); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
