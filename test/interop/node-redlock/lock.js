// Takes locks with node-redlock as told on standard input, one command a line:
//
//   lock NAME TTL-MS     answers "locked" or "refused"
//   unlock               answers "unlocked" or "gone"
//
// node lock.js HOST:PORT…
'use strict';

const readline = require('readline');
const Redis = require('ioredis');
const Redlock = require('redlock');

const clients = process.argv.slice(2).map((address) => {
  const [host, port] = address.split(':');
  return new Redis({ host, port: Number(port) });
});
const redlock = new Redlock(clients, { retryCount: 0 });

let held;
const commands = {
  async lock(name, ttl) {
    try {
      held = await redlock.lock(name, Number(ttl));
      return 'locked';
    } catch (error) {
      if (error.name !== 'LockError') throw error;
      return 'refused';
    }
  },
  async unlock() {
    try {
      await held.unlock();
      return 'unlocked';
    } catch (error) {
      if (error.name !== 'LockError') throw error;
      return 'gone';
    }
  },
};

async function main() {
  await Promise.all(clients.map((client) => client.ping()));
  console.log('ready');
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [verb, ...args] = line.split(' ');
    console.log(await commands[verb](...args));
  }
  clients.forEach((client) => client.disconnect());
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
