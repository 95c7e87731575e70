// What the drivers in JavaScript share: how a check is run, and how its line is printed.

/** A check failed and has said so. */
export class Failed extends Error {}

/** Runs a check within its time, and prints its line. */
export async function check(name, boundMs, body) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`nothing within ${boundMs} ms`)), boundMs);
  });
  try {
    await Promise.race([body(), late]);
  } catch (error) {
    console.log(`FAILED ${name}: ${error?.stack ?? error}`);
    throw new Failed(name);
  } finally {
    clearTimeout(timer);
  }
  console.log(`ok ${name}`);
}

/** Throws what was found, unless it is as it must be. */
export function expect(holds, found) {
  if (!holds) throw new Error(`found ${JSON.stringify(found)}`);
}
