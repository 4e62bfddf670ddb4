import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;

/** Builds a large map of long arrays, rewrites and checks it in order, sorts numbers; prints digests. */
public final class Maps {
    private static final int LONGS = 256;

    private static long mix(long x) {
        x += 0x9e3779b97f4a7c15L;
        x = (x ^ (x >>> 30)) * 0xbf58476d1ce4e5b9L;
        x = (x ^ (x >>> 27)) * 0x94d049bb133111ebL;
        return x ^ (x >>> 31);
    }

    private static long word(long key, long version, int at) {
        return mix(key ^ version << 40) + at * 0x9e3779b97f4a7c15L;
    }

    private static void fill(long[] words, long key, long version) {
        for (int i = 0; i < LONGS; i++) words[i] = word(key, version, i);
    }

    private static void check(Map<Long, long[]> map, int version) {
        int i = 0;
        long folded = 17;
        for (Map.Entry<Long, long[]> entry : map.entrySet()) {
            boolean rewritten = version > 0 && i % 3 == 0;
            long[] words = entry.getValue();
            for (int at = 0; at < LONGS; at++) {
                if (words[at] != word(entry.getKey(), rewritten ? version : 0, at)) throw new AssertionError("wrong value at " + i);
            }
            folded = mix(folded ^ words[LONGS / 2]);
            i++;
        }
        System.out.println("version " + version + " " + map.size() + " " + Long.toHexString(folded));
    }

    public static void main(String[] arguments) {
        int count = Integer.parseInt(arguments[0]);
        Map<Long, long[]> map = new LinkedHashMap<>();
        for (int i = 0; i < count; i++) {
            long key = mix(i);
            long[] words = new long[LONGS];
            fill(words, key, 0);
            map.put(key, words);
        }
        int i = 0;
        for (Map.Entry<Long, long[]> entry : map.entrySet()) if (i++ % 3 == 0) fill(entry.getValue(), entry.getKey(), 1);
        check(map, 1);
        long[] keys = new long[4 * count];
        for (i = 0; i < keys.length; i++) keys[i] = mix(i * 31L);
        Arrays.sort(keys);
        long folded = 17;
        for (long key : keys) folded = mix(folded ^ key);
        System.out.println("sorted " + keys.length + " " + Long.toHexString(folded));
        for (i = 0; i < count; i += 10) if (map.remove(mix(i)) == null) throw new AssertionError("no value at " + i);
        System.out.println("left " + map.size());
    }
}
