declare module "virtual:tour" {
  export const TOUR: import("./tour").Stop[];
}
