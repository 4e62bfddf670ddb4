"""Writes a large C file: many functions with switches, loops and tables. A function of its argument alone."""

import sys

count = int(sys.argv[1])
x = 1
print("typedef unsigned long word;\nextern word outside(word, word);")
for f in range(count):
    x = (x * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF
    table = ", ".join(str((x >> s) % 9973) for s in range(0, 48, 3))
    print(f"static const word table_{f}[16] = {{{table}}};")
    print(f"word function_{f}(word a, word b) {{\n  word sum = {x % 1000003};")
    print("  for (word i = 0; i < (b & 255); i++) {\n    switch ((a + i) % 8) {")
    for c in range(8):
        k = (x >> (c * 5)) % 8191
        print(f"    case {c}: sum += table_{f}[(sum + {k}) & 15] * (a ^ {k}); a = a * {2 * k + 1} + i; break;")
    print("    }\n    if (sum % 31 == 7) sum = outside(sum, a);\n  }")
    call = f"function_{(x >> 20) % f}(sum, a)" if f else "sum"
    print(f"  return sum > a ? {call} : a - sum;\n}}")
