import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;

/** Builds large maps and sorts long arrays, with garbage for the collector; prints digests. */
public final class Maps {
    private static long mix(long x) {
        x += 0x9e3779b97f4a7c15L;
        x = (x ^ (x >>> 30)) * 0xbf58476d1ce4e5b9L;
        x = (x ^ (x >>> 27)) * 0x94d049bb133111ebL;
        return x ^ (x >>> 31);
    }

    public static void main(String[] arguments) {
        int count = Integer.parseInt(arguments[0]);
        for (int round = 0; round < 3; round++) {
            Map<Long, String> map = new HashMap<>();
            for (int i = 0; i < count; i++) map.put(mix(i + 1000L * round), "value " + i);
            long sum = 0;
            for (int i = 0; i < count; i += 3) sum += map.remove(mix(i + 1000L * round)).hashCode();
            for (int i = 0; i < count; i++) {
                String value = map.get(mix(i + 1000L * round));
                if ((value == null) != (i % 3 == 0)) throw new AssertionError("wrong value at " + i + ": " + value);
                if (value != null && !value.equals("value " + i)) throw new AssertionError("wrong value at " + i + ": " + value);
            }
            long[] keys = new long[4 * count];
            for (int i = 0; i < keys.length; i++) keys[i] = mix(i * 31L + round);
            Arrays.sort(keys);
            long folded = 17;
            for (long key : keys) folded = mix(folded ^ key);
            System.out.println(round + " " + map.size() + " " + sum + " " + Long.toHexString(folded));
        }
    }
}
