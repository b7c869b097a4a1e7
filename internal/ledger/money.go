package ledger

import (
	"fmt"
	"math"
	"strings"
)

// Money is dollars an hour, in millionths. Sums in floating point are not exact: 0.1 + 0.2 is above a limit of 0.3, and
// what is added and taken away again leaves a remainder. List and spot prices have at most six decimals.
type Money int64

// Dollar is one dollar an hour.
const Dollar Money = 1_000_000

// maxMoney is more than any pool costs and maxPrice more than any machine does. A million machines at that price are still
// far from where a sum could overflow.
const (
	maxMoney = 1_000_000_000 * Dollar
	maxPrice = 1_000_000 * Dollar
)

// Dollars is the nearest Money to a number of dollars an hour: exact for up to six decimals. It is never below 0 (not a
// number is 0 too, so a limit of it admits nothing) nor above a thousand million. A price goes through NewMachine.
func Dollars(perHour float64) Money {
	switch micro := math.Round(perHour * float64(Dollar)); {
	case micro >= float64(maxMoney):
		return maxMoney
	case micro > 0:
		return Money(micro)
	}
	return 0
}

// PerHour is the amount in dollars an hour, for metrics.
func (m Money) PerHour() float64 { return float64(m) / float64(Dollar) }

// String writes cents, and what is below them where there is something: $55.04/h, $0.526/h.
func (m Money) String() string {
	sign, micro := "", uint64(m)
	if m < 0 {
		sign, micro = "-", uint64(-m)
	}
	whole, part := micro/uint64(Dollar), fmt.Sprintf("%06d", micro%uint64(Dollar))
	return fmt.Sprintf("%s$%d.%s%s/h", sign, whole, part[:2], strings.TrimRight(part[2:], "0"))
}

// Amount writes the number alone, as people do: 110.08, not 110.080000. A limit can be set to it.
func (m Money) Amount() string {
	sign, micro := "", uint64(m)
	if m < 0 {
		sign, micro = "-", uint64(-m)
	}
	digits := fmt.Sprintf("%s%d.%06d", sign, micro/uint64(Dollar), micro%uint64(Dollar))
	return strings.TrimSuffix(strings.TrimRight(digits, "0"), ".")
}
