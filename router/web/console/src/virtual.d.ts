declare module 'virtual:schema' {
    /** By the type's short name: attributes that CREATE and UPDATE take, secret ones, operations beyond 1.20's. */
    export const more: Record<string, { create: string[]; update: string[]; secret: string[]; operations: string[] } | undefined>;
    /** The types that GET-SCHEMA shows only once they are used, in its form. */
    export const extensions: Record<string, never>;
}
declare module '*.css';
