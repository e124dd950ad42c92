package amqptest

import (
	"slices"
	"strings"
)

// matches says whether a name matches a pattern, both made of words between
// dots: "*" stands for one word, "#" for any number of them.
func matches(pattern, name string) bool {
	return matchWords(strings.Split(pattern, "."), strings.Split(name, "."))
}

func matchWords(pattern, words []string) bool {
	for i, p := range pattern {
		if p == "#" {
			for skip := range len(words) + 1 {
				if matchWords(pattern[i+1:], words[skip:]) {
					return true
				}
			}
			return false
		}
		if len(words) == 0 || p != "*" && p != words[0] {
			return false
		}
		words = words[1:]
	}
	return len(words) == 0
}

func isPattern(name string) bool {
	return slices.ContainsFunc(strings.Split(name, "."), func(w string) bool { return w == "*" || w == "#" })
}

// storeByPattern gives m to the subscriptions whose address is a pattern that
// n's matches.
func (n *node) storeByPattern(m *message) {
	for name, other := range n.srv.patterns {
		if other == n || !matches(name, n.name) {
			continue
		}
		for _, q := range other.queues {
			c := *m
			q.put(&c)
		}
	}
}
