// Package walls keeps the rules of the house: which room may import what (.golangci.yml, rule by rule, each proved to
// fire) and what no binary may link, directly or through others. It holds tests only.
package walls
