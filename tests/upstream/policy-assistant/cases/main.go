// Cyclonus' generated cases, its model of what each should do and its report. Its own command line cannot ask for one call
// into each Pod instead of some hundred for a case, although its library can.
package main

import (
	"flag"
	"fmt"
	"log"
	"strings"

	"github.com/mattfenwick/cyclonus/pkg/connectivity"
	"github.com/mattfenwick/cyclonus/pkg/connectivity/probe"
	"github.com/mattfenwick/cyclonus/pkg/generator"
	"github.com/mattfenwick/cyclonus/pkg/kube"
	v1 "k8s.io/api/core/v1"
)

func main() {
	include := flag.String("include", "", "only cases with one of these tags")
	exclude := flag.String("exclude", "", "no case with one of these tags")
	wait := flag.Int("wait", 5, "how long the cluster has to take a change over, s")
	junit := flag.String("junit", "", "where the report goes")
	flag.Parse()
	if err := run(tags(*include), tags(*exclude), *wait, *junit); err != nil {
		log.Fatal(err)
	}
}

func run(include, exclude []string, wait int, junit string) error {
	if err := generator.ValidateTags(append(include, exclude...)); err != nil {
		return err
	}
	kubernetes, err := kube.NewKubernetesForContext("")
	if err != nil {
		return err
	}
	namespaces, pods := []string{"x", "y", "z"}, []string{"a", "b", "c"}
	protocols := []v1.Protocol{v1.ProtocolTCP, v1.ProtocolUDP}
	resources, err := probe.NewDefaultResources(
		kubernetes, namespaces, pods, []int{80, 81}, protocols, nil, 180, true, "registry.k8s.io")
	if err != nil {
		return err
	}
	interpreter := connectivity.NewInterpreter(kubernetes, resources, &connectivity.InterpreterConfig{
		ResetClusterBeforeTestCase:       true,
		VerifyClusterStateBeforeTestCase: true,
		KubeProbeRetries:                 1,
		PerturbationWaitSeconds:          wait,
		BatchJobs:                        true,
		// It expects that a Pod can be kept from itself, which Kubernetes says that no policy does.
		IgnoreLoopback: true,
	})
	printer := &connectivity.Printer{IgnoreLoopback: true, JunitResultsFile: junit}
	peer, err := resources.GetPod("z", "c")
	if err != nil {
		return err
	}
	cases := generator.NewTestCaseGenerator(true, peer.IP, namespaces, include, exclude).GenerateTestCases()
	for i, testCase := range cases {
		fmt.Printf("case %d of %d: %s\n", i+1, len(cases), testCase.Description)
		result := interpreter.ExecuteTestCase(testCase)
		if result.Err != nil {
			return fmt.Errorf("case %d: %w", i+1, result.Err)
		}
		printer.PrintTestCaseResult(result)
	}
	printer.PrintSummary()
	return nil
}

func tags(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}
